,
-- The claim table needs the time of the state it decides about: the snapshot is older than this.
time as materialized (select selfsame.clock() as now),
looked as materialized (
  select time.now, g.*, k.known
  from time, given g
  left join lateral (select x as known from selfsame.keys x where x.id = g.id limit 1) k on true
),
-- Whoever loses to a rival that this snapshot does not show is neither born nor known, and looks
-- again.
unseen as (select * from looked where (known).id is null)
