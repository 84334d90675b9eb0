-- Puts rows in the place of rows that are still as they were seen. No lock is waited for.
with given as (
  select * from unnest(
    $1::bytea[], $2::bytea[], $3::integer[], $4::bytea[], $5::smallint[], $6::bigint[],
    $7::bigint[], $8::integer[], $9::bytea[], $10::bytea[], $11::smallint[], $12::bigint[],
    $13::bigint[], $14::bigint[], $15::bigint[], $16::bytea[], $17::text[], $18::text[],
    $19::text[], $20::text[], $21::integer[], $22::bigint[], $23::bigint[], $24::bytea[],
    $25::bytea[]
  ) as g(
    id, seen_attempt_id, seen_version, fingerprint, state, state_at,
    fence, attempt, attempt_id, birth, recover, created_at,
    expires_at, retention_ms, remember_ms, tenant, tenant_name, key,
    route, recovery_point, answer_bucket, answer_row, sum, checkpoint,
    answer)
),
mine as materialized (
  select g.*
  from given g
  cross join lateral (
    select 1 from selfsame.keys x
    where x.id = g.id and x.attempt_id = g.seen_attempt_id and x.version = g.seen_version
    limit 1 for update skip locked
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
  delete from selfsame.checkpoints c using mine m
  where c.id = m.id and m.recovery_point is null
)
update selfsame.keys k
set fingerprint = m.fingerprint, state = m.state, state_at = m.state_at, fence = m.fence,
    attempt = m.attempt, attempt_id = m.attempt_id, birth = m.birth, recover = m.recover,
    created_at = m.created_at, expires_at = m.expires_at, retention_ms = m.retention_ms,
    remember_ms = m.remember_ms, tenant = m.tenant, tenant_name = m.tenant_name, key = m.key,
    route = m.route, recovery_point = m.recovery_point, answer_bucket = m.answer_bucket,
    answer_row = m.answer_row, version = m.seen_version + 1, sum = m.sum
from mine m
where k.id = m.id
returning k.id
