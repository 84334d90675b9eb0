-- The first claim of a key, if it is new: the unique index decides the winner.
insert into selfsame.keys (
  id, fingerprint, state, state_at, fence, attempt, attempt_id, recover, created_at, expires_at,
  retention_ms, remember_ms, tenant, tenant_name, key, route, version, sum,
  outline, request)
select id, fingerprint, 1, now + lease_ms, 1, 1, attempt_id, recover, now, now + retention_ms,
       retention_ms, remember_ms, tenant, tenant_name, key, route, 1,
       still # selfsame.moving(1::smallint, now + lease_ms, now, now + retention_ms, 1, null, null),
       outline, request
from unseen
on conflict do nothing
returning id, created_at
