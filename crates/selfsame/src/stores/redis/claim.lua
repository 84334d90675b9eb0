-- Claims a key that is new; what is known of any other is for core's rules.
local before, after, lives, guard, beats, ahead = unpack(ARGV)
local time = redis.call('TIME')
if guard ~= '' then
  -- What is not known was perhaps lost. Who has counted more than there is, or knows another guard, finds out.
  local found = redis.call('HMGET', KEYS[2], 'id', 'beats', 'closed_until')
  local closed = found[3] and tonumber(found[3]) > time[1] * 1000 + time[2] / 1000 + ahead
  if found[1] ~= guard or closed or tonumber(found[2] or 0) < tonumber(beats) then
    return { time[1], time[2], redis.call('GET', KEYS[1]) or 0 }
  end
end
local base = struct.pack('>I4I4', time[1], time[2])
local value = before .. base .. base .. after
local is_new
if lives == '' then
  is_new = redis.call('SET', KEYS[1], value, 'NX')
else
  is_new = redis.call('SET', KEYS[1], value, 'NX', 'PX', lives)
end
if is_new then
  return time
end
return { time[1], time[2], redis.call('GET', KEYS[1]) }
