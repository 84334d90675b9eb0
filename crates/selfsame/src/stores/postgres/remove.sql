-- Takes rows away that are still as they were seen. No lock is waited for.
with given as (
  select * from unnest($1::bytea[], $2::bytea[], $3::integer[])
    as g(id, seen_attempt_id, seen_version)
),
-- They are ours from here on, so that each stays at its place until it is deleted there.
mine as materialized (
  select g.id, k.place, k.has_checkpoint
  from given g
  cross join lateral (
    select x.ctid as place, x.recovery_point is not null as has_checkpoint
    from selfsame.keys x
    where x.id = g.id and x.attempt_id = g.seen_attempt_id and x.version = g.seen_version
    limit 1 for update skip locked
  ) k
),
gone as (
  delete from selfsame.checkpoints
  where id = any (array(select id from mine where has_checkpoint))
),
forgotten as (
  delete from selfsame.journal
  where id = any (array(select id from mine where has_checkpoint))
)
delete from selfsame.keys k using mine m where k.ctid = m.place returning k.id
