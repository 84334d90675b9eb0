-- Keeps the list of nodes that use this store, each with the moment at which it was last here; a negative one is that at which
-- it left.
local member, keep, leaves = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HGET', KEYS[1], 'members') or ''
local members = {}
for name, at in string.gmatch(found, '(%x+):(%-?%d+)') do
  if name ~= member and now - math.abs(at) < keep then
    members[#members + 1] = name .. ':' .. at
  end
end
members[#members + 1] = member .. ':' .. (leaves == '1' and '-' or '') .. string.format('%.0f', now)
local list = table.concat(members, ' ')
redis.call('HSET', KEYS[1], 'members', list)
return { now, list }
