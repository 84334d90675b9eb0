-- Claims a key that is new; what is known of any other is for core's rules.
local ahead, lease, retention, remember, attempt_id, sums, lives, record, behind,
  guard, beats = unpack(ARGV)
local now = time(ahead)
local value = redis.call('GET', KEYS[1])
if value then
  return { now, value }
end
if guard ~= '' then
  -- What is not known was perhaps lost. Who has counted more than there is, or knows another guard, finds out.
  local id, counted, closed = unpack(redis.call('HMGET', KEYS[2], 'id', 'beats', 'closed_until'))
  if id ~= guard or tonumber(counted or 0) < tonumber(beats) then
    return { now, 0 }
  elseif closed and tonumber(closed) > now then
    return { now, tonumber(closed) }
  end
end
local head = sealed('SR', 1, CLAIMED, now + lease, now, now + retention, retention, remember, 1,
  attempt_id, string.sub(attempt_id, 1, 8), sums, #record)
value = head .. record .. behind
if lives == '' then
  redis.call('SET', KEYS[1], value)
else
  redis.call('SET', KEYS[1], value, 'PX', lives)
end
return { now }
