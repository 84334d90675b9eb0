-- Somebody misses records, of this guard's or of one beside it: no new key is taken for as long as they would have been
-- known. Who misses them after that was said, or after it is over, is told so.
local ahead, id, beats, window, new_id, beside = unpack(ARGV)
local now = time(ahead)
local found, counted, closed = unpack(redis.call('HMGET', KEYS[1], 'id', 'beats', 'closed_until'))
local is_lost = found ~= id or tonumber(counted or 0) < tonumber(beats)
if not is_lost and beside == '0' then
  return { now, found, tonumber(counted or 0), tonumber(closed or 0), 0 }
end
-- A guard that was made anew, and never closed, is that of somebody who knows nothing of a loss.
local is_told = closed and (found ~= id or tonumber(closed) > now)
if not is_told then
  closed = now + window
end
counted = math.max(tonumber(counted or 0), found == id and tonumber(beats) or 0)
found = found or new_id
redis.call('HSET', KEYS[1], 'id', found, 'beats', counted, 'closed_until', closed)
return { now, found, counted, tonumber(closed), 1 }
