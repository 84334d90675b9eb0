-- A node that misses nothing here says so: in answer to the call that is there, or by a call of its own, which all nodes
-- answer. Tells which call was there before.
local member, id, beats, own, call = unpack(ARGV)
local found = redis.call('HMGET', KEYS[1], 'id', 'beats', 'own:' .. member, 'call')
if found[1] ~= id or tonumber(found[2] or 0) < tonumber(beats) or tonumber(found[3] or 0) < tonumber(own) then
  return 0
end
local before = found[4] or ''
if call ~= '' then
  redis.call('HSET', KEYS[1], 'call', call .. ' ' .. member)
elseif before ~= '' and not string.find(before, ' ' .. member, 1, true) then
  redis.call('HSET', KEYS[1], 'call', before .. ' ' .. member)
end
return string.match(before, '^%S*')
