-- Takes rows away that are still as they were seen. No lock is waited for.
with given as (
  select * from unnest($1::bytea[], $2::bytea[], $3::integer[])
    as g(id, seen_attempt_id, seen_version)
),
mine as materialized (
  select g.id
  from given g
  cross join lateral (
    select 1 from selfsame.keys x
    where x.id = g.id and x.attempt_id = g.seen_attempt_id and x.version = g.seen_version
    limit 1 for update skip locked
  ) k
),
gone as (delete from selfsame.checkpoints where id = any (array(select id from mine)))
delete from selfsame.keys where id = any (array(select id from mine)) returning id
