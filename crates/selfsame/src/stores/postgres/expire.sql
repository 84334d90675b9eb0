-- Looks at the keys of a stretch, and takes away most of those that expired, without showing them to
-- anybody: what was completed, is not remembered and has nothing in other tables. That it expired is
-- believed if its times agree with each other and with the day of its answer; where one of them was
-- damaged, the checksum is to decide.
-- No lock is taken beforehand, because that writes each row once more; and none is waited for: what a
-- transaction that goes on has touched is left to the rules.
with time as materialized (
  select selfsame.clock() as now,
    age((pg_snapshot_xmin(pg_current_snapshot())::text::numeric % 4294967296)::text::xid) as going_on
), stretch as materialized (
  select x.ctid as spot,
    x.state = 2 and x.remember_ms = 0 and x.recovery_point is null
    and x.expires_at <= time.now
    and x.expires_at
      = greatest(x.created_at + x.retention_ms, x.state_at + least(x.retention_ms, 3600000))
    and x.answer_bucket = x.expires_at / 86400000
    and (x.xmax = 0 or age(x.xmax) > time.going_on) as is_over
  from time cross join selfsame.keys x
  where x.ctid > $1::text::tid and x.ctid <= $2::text::tid
  limit $3::bigint
), gone as (
  -- A row that was claimed anew since it was looked at must stay. The conditions are repeated because
  -- servers before 14.20, 15.15, 16.11 and 17.7 delete the new version of a row found by its ctid.
  delete from selfsame.keys k
  where k.ctid = any (array(select spot from stretch where is_over and $4::boolean)::tid[])
    and k.state = 2 and k.expires_at <= (select now from time)
  returning 1
)
select count(*), max(spot)::text,
  pg_relation_size('selfsame.keys') / current_setting('block_size')::bigint,
  (select count(*) from gone)
from stretch
