-- Puts rows in the place of rows that are still as they were seen. No lock is waited for, and whoever
-- has a row that refers to one of these does not lock it: that is what "no key" is for.
with given as (
  select * from unnest(
    $1::bytea[], $2::bytea[], $3::integer[], $4::bytea[], $5::smallint[], $6::bigint[],
    $7::bigint[], $8::integer[], $9::bytea[], $10::bytea[], $11::smallint[], $12::bigint[],
    $13::bigint[], $14::bigint[], $15::bigint[], $16::bytea[], $17::text[], $18::text[],
    $19::text[], $20::text[], $21::integer[], $22::bigint[], $23::bigint[], $24::bytea[],
    $25::bytea[], $26::bytea[], $27::bytea[]
  ) as g(
    id, seen_attempt_id, seen_version, fingerprint, state, state_at,
    fence, attempt, attempt_id, birth, recover, created_at,
    expires_at, retention_ms, remember_ms, tenant, tenant_name, key,
    route, recovery_point, answer_bucket, answer_row, sum, checkpoint,
    answer, outline, request)
),
mine as materialized (
  select g.*
  from given g
  cross join lateral (
    select 1 from selfsame.keys x
    where x.id = g.id and x.attempt_id = g.seen_attempt_id and x.version = g.seen_version
    limit 1 for no key update skip locked
  ) k
),
kept as (
  insert into selfsame.answers (bucket, row, body)
  select answer_bucket, answer_row, answer from mine where answer is not null
),
saved as (
  insert into selfsame.checkpoints as c (id, body)
  select id, checkpoint from mine where checkpoint is not null
  on conflict (id) do update set body = excluded.body
),
gone as (
  delete from selfsame.checkpoints
  where id = any (array(select id from mine where recovery_point is null))
),
forgotten as (
  delete from selfsame.journal
  where id = any (array(select id from mine where recovery_point is null))
)
-- The rows are there and ours: each is found by the unique index, whatever a plan would think of
-- the size of the table.
insert into selfsame.keys as k
select id, fingerprint, state, state_at, fence, attempt, attempt_id, birth, recover, created_at,
       expires_at, retention_ms, remember_ms, tenant, tenant_name, key, route, recovery_point,
       answer_bucket, answer_row, seen_version + 1, sum, outline, request
from mine
on conflict (id) do update
set fingerprint = excluded.fingerprint, state = excluded.state, state_at = excluded.state_at,
    fence = excluded.fence, attempt = excluded.attempt, attempt_id = excluded.attempt_id,
    birth = excluded.birth, recover = excluded.recover, created_at = excluded.created_at,
    expires_at = excluded.expires_at, retention_ms = excluded.retention_ms,
    remember_ms = excluded.remember_ms, tenant = excluded.tenant,
    tenant_name = excluded.tenant_name, key = excluded.key, route = excluded.route,
    recovery_point = excluded.recovery_point, answer_bucket = excluded.answer_bucket,
    answer_row = excluded.answer_row, version = excluded.version, sum = excluded.sum,
    outline = excluded.outline,
    -- It was not read, because it is large: it stays until the work is done, or the key new again.
    request = case when excluded.state in (2, 5) then null
                   when excluded.fence = 1 and excluded.attempt_id <> k.attempt_id
                   then excluded.request
                   else k.request end
returning k.id
