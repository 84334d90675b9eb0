-- Lets leases live on from now. Their own claims may still speak while claimed, and while held. A row
-- that somebody else has locked is left for the next time.
with given as (
  select * from unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[])
    as g(id, attempt_id, fence, lease_ms)
),
time as materialized (select selfsame.clock() as now),
mine as materialized (
  select time.now + g.lease_ms as lease_until, k.*
  from time, given g
  cross join lateral (
    select * from selfsame.keys x
    where x.id = g.id and x.attempt_id = g.attempt_id and x.fence = g.fence and x.state in (1, 4)
    limit 1 for no key update skip locked
  ) k
)
-- The rows are there and ours: each is found by the unique index, whatever a plan would think of
-- the size of the table.
insert into selfsame.keys as k
select id, fingerprint, 1, lease_until, fence, attempt, attempt_id, birth, recover, created_at,
       expires_at, retention_ms, remember_ms, tenant, tenant_name, key, route, recovery_point,
       answer_bucket, answer_row, version + 1,
       sum # selfsame.moving(state, state_at, created_at, expires_at, version, null, null)
           # selfsame.moving(1::smallint, lease_until, created_at, expires_at, version + 1, null, null)
from mine
on conflict (id) do update
set state = excluded.state, state_at = excluded.state_at, version = excluded.version,
    sum = excluded.sum
returning k.id
