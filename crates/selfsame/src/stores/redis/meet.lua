-- Reads a guard, or makes it, and tells how long ago that was.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local is_made = redis.call('HSETNX', KEYS[1], 'id', ARGV[1])
if is_made == 1 then
  redis.call('HSET', KEYS[1], 'made_at', string.format('%.0f', now))
end
local found = redis.call('HMGET', KEYS[1], 'id', 'beats', 'window', 'made_at', 'missed')
local age = math.max(0, now - (found[4] or 0))
return { is_made, found[1], tonumber(found[2] or 0), tonumber(found[3] or 0), age, found[5] or '' }
