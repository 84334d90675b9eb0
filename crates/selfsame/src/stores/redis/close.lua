-- A node misses records, of this guard's or of one beside it: no new key is taken for as long as they would have been known.
-- The guard gets another name, and the names it had are kept: a node that knows one of those misses what was missed before,
-- and closes nothing again, even where an operator has reopened since.
local ahead, id, beats, own, own_until, window, new_id, beside, remembered = unpack(ARGV)
local now, found, counted, _, is_lost = counts(ahead, id, beats, own, own_until)
local closed, missed, longest = unpack(redis.call('HMGET', KEYS[1], 'closed_until', 'missed', 'window'))
closed, missed = tonumber(closed or 0), missed or ''
window = math.max(tonumber(window), tonumber(longest or 0))
local is_closed_before = found and string.find(missed, id, 1, true) or not is_lost and closed > now
if not is_lost and beside == '0' then
  return { now, found, counted, closed, 0, missed }
elseif is_closed_before then
  return { now, found, counted, closed, 1, missed }
end
closed = math.max(closed, now + window)
-- Older names may be lost as well. A node that was stopped may yet know one of them.
for name in string.gmatch(remembered, '%S+') do
  if not string.find(missed, name, 1, true) then
    missed = missed .. ' ' .. name
  end
end
missed = missed .. ' ' .. id
if found and found ~= id then
  missed = missed .. ' ' .. found
end
-- The last ones are enough: nodes look every second.
missed = string.sub(missed, -1056)
redis.call('HSET', KEYS[1], 'id', new_id, 'beats', counted, 'closed_until', closed, 'missed', missed,
  'window', window)
return { now, new_id, counted, closed, 2, missed }
