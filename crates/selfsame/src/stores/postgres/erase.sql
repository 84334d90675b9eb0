-- Makes a tombstone of a row that is still as it was seen, and takes away all that is kept of it
-- elsewhere. No lock is waited for.
with mine as materialized (
  select k.id, k.answer_bucket, k.answer_row
  from selfsame.keys k
  where k.id = $1::bytea and k.attempt_id = $2::bytea and k.version = $3::integer
  limit 1 for no key update skip locked
),
answer as (
  delete from selfsame.answers a using mine m
  where a.bucket = m.answer_bucket and a.row = m.answer_row
),
gone as (
  delete from selfsame.checkpoints where id = any (array(select id from mine))
),
forgotten as (
  delete from selfsame.journal where id = any (array(select id from mine))
)
update selfsame.keys k
set state = $4::smallint, state_at = $5::bigint, expires_at = $6::bigint, recovery_point = null,
    answer_bucket = null, answer_row = null, outline = null, request = null, version = k.version + 1, sum = $7::bigint
from mine m where k.id = m.id
returning k.id
