,
time as materialized (select selfsame.clock() as now),
placed as materialized (
  select g.*, time.now, time.now - g.age_ms as created_at, time.now + g.left_ms as expires_at,
         ((time.now + g.left_ms) / 86400000)::integer as bucket,
         nextval('selfsame.answer_rows') as place
  from time, given g
),
-- The unique index decides between two runs of one key. Whatever is not finished gives way: it is claimed elsewhere.
written as (
  insert into selfsame.keys as k (
    id, fingerprint, state, state_at, fence, attempt, attempt_id, birth, recover, created_at,
    expires_at, retention_ms, remember_ms, tenant, tenant_name, key, route, answer_bucket,
    answer_row, version, sum, outline)
  select id, fingerprint, 2, now, fence, attempt, attempt_id, birth, recover, created_at,
         expires_at, retention_ms, remember_ms, tenant, tenant_name, key, route, bucket,
         place, 1,
         still # selfsame.moving(2::smallint, now, created_at, expires_at, 1, bucket, place),
         outline
  from placed
  on conflict (id) do update
  set fingerprint = excluded.fingerprint, state = excluded.state, state_at = excluded.state_at,
      fence = excluded.fence, attempt = excluded.attempt, attempt_id = excluded.attempt_id,
      birth = excluded.birth, recover = excluded.recover, created_at = excluded.created_at,
      expires_at = excluded.expires_at, retention_ms = excluded.retention_ms,
      remember_ms = excluded.remember_ms, tenant = excluded.tenant,
      tenant_name = excluded.tenant_name, key = excluded.key, route = excluded.route,
      recovery_point = null, answer_bucket = excluded.answer_bucket,
      answer_row = excluded.answer_row, version = k.version + 1,
      sum = excluded.sum # selfsame.turn(1::bigint, 13)
                         # selfsame.turn((k.version + 1)::bigint, 13),
      outline = excluded.outline, request = null
  where k.state not in (2, 5) or k.expires_at + k.remember_ms <= excluded.state_at
  returning k.id, k.answer_row, k.version
),
kept as (
  insert into selfsame.answers (bucket, row, body)
  select p.bucket, p.place, p.body from written w join placed p on p.place = w.answer_row
),
-- Of what was there before.
gone as (
  delete from selfsame.checkpoints
  where id = any (array(select id from written where version > 1))
),
forgotten as (
  delete from selfsame.journal
  where id = any (array(select id from written where version > 1))
)
select id from written
