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
    limit 1 for update skip locked
  ) k
),
kept as (
  insert into selfsame.answers (bucket, row, body)
  select kept_until / 86400000, place, body from mine
)
update selfsame.keys k
set state = 2, state_at = m.now, expires_at = m.kept_until,
    answer_bucket = m.kept_until / 86400000, answer_row = m.place, version = m.version + 1,
    sum = m.sum
        # selfsame.moving(m.state, m.state_at, m.created_at, m.expires_at, m.version, null, null)
        # selfsame.moving(2::smallint, m.now, m.created_at, m.kept_until, m.version + 1,
                          (m.kept_until / 86400000)::integer, m.place)
from mine m
where k.id = m.id
returning k.id, k.expires_at
