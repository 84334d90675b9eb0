-- Something was written beside this guard since it was last counted. Where anything is missed it is not counted: what was
-- lost would look like more.
local member, id, beats, own, window = unpack(ARGV)
local found = redis.call('HMGET', KEYS[1], 'id', 'beats', 'own:' .. member, 'window')
if found[1] ~= id or tonumber(found[2] or 0) < tonumber(beats) or tonumber(found[3] or 0) < tonumber(own) then
  return 0
end
-- For how long keys are known at most, for those who were never asked for one that lives so long.
if tonumber(found[4] or 0) < tonumber(window) then
  redis.call('HSET', KEYS[1], 'window', window)
end
return {
  redis.call('HINCRBY', KEYS[1], 'beats', 1),
  redis.call('HINCRBY', KEYS[1], 'own:' .. member, 1),
}
