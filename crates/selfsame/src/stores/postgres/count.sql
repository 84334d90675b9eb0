-- How many records there are in each state. Says in SQL what Record::is_leased, is_held,
-- is_tombstone and is_expired say.
with
  time as materialized (select selfsame.clock() as now),
  leased as (
    select state, recover, recovery_point, expires_at <= now as is_over,
           state in (2, 5) and expires_at + remember_ms > now as is_remembered,
           state = 1 and state_at > now as is_leased
    from selfsame.keys, time
  ),
  held as (
    select state, is_over, is_remembered, is_leased,
           state = 4
           or (state = 1 and not is_leased
               and (recover = 2 or (recover = 3 and recovery_point is null))) as is_held
    from leased
  )
select case when is_held then 4::smallint when is_over and is_remembered then 5::smallint
            else state end as shown,
       count(*)
from held
where is_leased or is_held or is_remembered or not is_over
group by shown
