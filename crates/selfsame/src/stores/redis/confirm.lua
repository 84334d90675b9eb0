-- A node that misses nothing here says so: in answer to the call that is there, or by a call of its own, which all nodes
-- answer. Tells which call was there before.
local ahead, id, beats, own, own_until, member, call = unpack(ARGV)
local _, _, _, _, is_missed = counts(ahead, id, beats, own, own_until)
if is_missed then
  return 0
end
local before = redis.call('HGET', KEYS[1], 'call') or ''
if call ~= '' then
  redis.call('HSET', KEYS[1], 'call', call .. ' ' .. member)
elseif before ~= '' and not string.find(before, ' ' .. member, 1, true) then
  redis.call('HSET', KEYS[1], 'call', before .. ' ' .. member)
end
return string.match(before, '^%S*')
