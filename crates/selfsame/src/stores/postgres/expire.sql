-- Takes away most of what expired, without showing it to anybody: what was completed, is not
-- remembered and has nothing in other tables. That it expired is believed if its times agree with each
-- other and with the day of its answer; where one of them was damaged, the checksum is to decide.
-- No lock is waited for. What is locked is ours, so that it stays at its place until it is deleted
-- there.
delete from selfsame.keys k
where k.ctid = any (array(
  select x.ctid from selfsame.keys x
  where x.ctid > $1::text::tid and x.ctid <= $2::text::tid
    and x.state = 2 and x.remember_ms = 0 and x.recovery_point is null
    and x.expires_at <= (select selfsame.clock())
    and x.expires_at
      = greatest(x.created_at + x.retention_ms, x.state_at + least(x.retention_ms, 3600000))
    and x.answer_bucket = x.expires_at / 86400000
  for update skip locked
)::tid[])
