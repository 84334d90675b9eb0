-- Puts values in the places of those that are still as they were seen, or takes those away. Each is told of by itself.
local function replace(key, seen, lives, value)
  local head = redis.call('GETRANGE', key, 0, #seen - 1)
  if head == '' then
    return 'gone'
  end
  -- This was sent before: no two writes have the same head. It is written once more, because only what a connection
  -- itself has written can be waited for.
  if head ~= seen and (value == '' or head ~= string.sub(value, 1, #seen)) then
    return 'changed'
  elseif value == '' then
    redis.call('DEL', key)
  elseif lives == '' then
    redis.call('SET', key, value)
  else
    redis.call('SET', key, value, 'PX', lives)
  end
  return 'done'
end

local said = {}
for at, key in ipairs(KEYS) do
  local is_done, what = pcall(replace, key, ARGV[3 * at - 2], ARGV[3 * at - 1], ARGV[3 * at])
  -- Older servers have their errors as texts.
  said[at] = (is_done or type(what) == 'table') and what or redis.error_reply(what)
end
return said
