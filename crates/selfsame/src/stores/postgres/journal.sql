-- Notes a finished phase in the journal, and in the key's row as its recovery point, if the claim
-- still stands. No lock is waited for.
with mine as materialized (
  select * from selfsame.keys
  where id = $1::bytea and attempt_id = $2::bytea and fence = $3::bigint and state in (1, 4)
  for no key update skip locked
),
noted as (
  insert into selfsame.journal (id, birth, ordinal, name, body)
  select id, $4::bytea, $5::bigint::integer, $6::text, $7::bytea from mine
),
saved as (
  insert into selfsame.checkpoints as c (id, body)
  select id, $8::bytea from mine
  on conflict (id) do update set body = excluded.body
)
update selfsame.keys k
set recovery_point = $6::text, version = m.version + 1,
    sum = m.sum # selfsame.moving(m.state, m.state_at, m.created_at, m.expires_at, m.version, null, null)
                # selfsame.moving(m.state, m.state_at, m.created_at, m.expires_at, m.version + 1, null, null)
                # case when m.recovery_point is null then $9::bigint else 0 end
from mine m
where k.id = $1::bytea
returning 1::bigint
