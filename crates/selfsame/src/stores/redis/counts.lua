-- The time, the name and the counts of a guard, and whether the node that asks misses some of that. Its own count is a key
-- that ends when all that the node had written has expired, held keys aside, which only the count of all protects from then on.
local function counts(ahead, id, beats, own, own_until)
  local now = time(ahead)
  local found = redis.call('HMGET', KEYS[1], 'id', 'beats')
  local counted, mine = tonumber(found[2] or 0), tonumber(redis.call('GET', KEYS[2]) or 0)
  local is_own_missed = mine < tonumber(own) and now < tonumber(own_until)
  local is_missed = found[1] ~= id or counted < tonumber(beats) or is_own_missed
  return now, found[1], counted, mine, is_missed
end
