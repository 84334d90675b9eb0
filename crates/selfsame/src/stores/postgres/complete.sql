,
time as materialized (select selfsame.clock() as now),
-- Its own claim may still speak while claimed, and while held. A row that somebody else has locked
-- is left to be tried alone.
mine as materialized (
  select time.now, g.body, k.*,
         greatest(k.expires_at, time.now + least(k.retention_ms, 3600000)) as kept_until,
         nextval('selfsame.answer_rows') as place
  from time, given g
  cross join lateral (
    select * from selfsame.keys x
    where x.id = g.id and x.attempt_id = g.attempt_id and x.fence = g.fence and x.state in (1, 4)
    limit 1 for no key update skip locked
  ) k
),
kept as (
  insert into selfsame.answers (bucket, row, body)
  select kept_until / 86400000, place, body from mine
)
-- The rows are there and ours: each is found by the unique index, whatever a plan would think of
-- the size of the table.
insert into selfsame.keys as k
select id, fingerprint, 2, now, fence, attempt, attempt_id, birth, recover, created_at, kept_until,
       retention_ms, remember_ms, tenant, tenant_name, key, route, recovery_point,
       kept_until / 86400000, place, version + 1,
       sum # selfsame.moving(state, state_at, created_at, expires_at, version, null, null)
           # selfsame.moving(2::smallint, now, created_at, kept_until, version + 1,
                             (kept_until / 86400000)::integer, place)
from mine
on conflict (id) do update
set state = excluded.state, state_at = excluded.state_at, expires_at = excluded.expires_at,
    answer_bucket = excluded.answer_bucket, answer_row = excluded.answer_row,
    version = excluded.version, sum = excluded.sum, request = null
returning k.id, k.expires_at
