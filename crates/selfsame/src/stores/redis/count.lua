-- Something was written beside this guard since it was last counted. Where anything is missed it is not counted: what was
-- lost would look like more.
local ahead, id, beats, own, own_until, window, keep = unpack(ARGV)
local now, _, _, mine, is_missed = counts(ahead, id, beats, own, own_until)
if is_missed then
  return 0
end
-- For how long keys are known at most, for those who were never asked for one that lives so long.
if tonumber(redis.call('HGET', KEYS[1], 'window') or 0) < tonumber(window) then
  redis.call('HSET', KEYS[1], 'window', window)
end
-- A little longer than it is missed: clocks may be set back.
redis.call('SET', KEYS[2], mine + 1, 'PX', keep + 60000)
return { redis.call('HINCRBY', KEYS[1], 'beats', 1), mine + 1, now + keep }
