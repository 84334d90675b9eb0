-- Puts rows there as they are, where there are none.
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
mine as (
  insert into selfsame.keys as k (
    id, fingerprint, state, state_at, fence, attempt, attempt_id, birth, recover, created_at,
    expires_at, retention_ms, remember_ms, tenant, tenant_name, key, route, recovery_point,
    answer_bucket, answer_row, version, sum, outline, request)
  select id, fingerprint, state, state_at, fence, attempt, attempt_id, birth, recover, created_at,
         expires_at, retention_ms, remember_ms, tenant, tenant_name, key, route, recovery_point,
         answer_bucket, answer_row, seen_version + 1, sum, outline, request
  from given
  on conflict do nothing
  returning k.id
),
kept as (
  insert into selfsame.answers (bucket, row, body)
  select g.answer_bucket, g.answer_row, g.answer from given g join mine m on m.id = g.id
  where g.answer is not null
),
saved as (
  insert into selfsame.checkpoints as c (id, body)
  select g.id, g.checkpoint from given g join mine m on m.id = g.id
  where g.checkpoint is not null
  on conflict (id) do update set body = excluded.body
)
select id from mine
