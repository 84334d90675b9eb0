-- An operator knows better than a guard that is closed.
local ahead = ARGV[1]
local closed = tonumber(redis.call('HGET', KEYS[1], 'closed_until') or 0)
if closed <= time(ahead) then
  return 0
end
redis.call('HSET', KEYS[1], 'closed_until', 0)
return 1
