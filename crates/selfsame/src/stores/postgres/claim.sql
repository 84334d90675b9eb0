,
-- The claim table needs the time of the state it decides about: the snapshot is older than this.
time as materialized (select selfsame.clock() as now),
looked as materialized (
  select time.now, g.*, k.known
  from time, given g
  left join lateral (select x as known from selfsame.keys x where x.id = g.id limit 1) k on true
),
-- The unique index decides the winner. Whoever loses to a rival that this snapshot does not show
-- is neither born nor known, and looks again.
born as (
  insert into selfsame.keys (
    id, fingerprint, state, state_at, fence, attempt, attempt_id, recover, created_at, expires_at,
    retention_ms, remember_ms, tenant, tenant_name, key, route, version, sum)
  select id, fingerprint, 1, now + lease_ms, 1, 1, attempt_id, recover, now, now + retention_ms,
         retention_ms, remember_ms, tenant, tenant_name, key, route, 1,
         still # selfsame.moving(1::smallint, now + lease_ms, now, now + retention_ms, 1, null, null)
  from looked
  where (known).id is null
  on conflict do nothing
  returning id
)
