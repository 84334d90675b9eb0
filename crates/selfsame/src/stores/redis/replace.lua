-- Puts a value in the place of one that is still as it was seen, or takes that away.
local seen, lives, value = unpack(ARGV)
local head = redis.call('GETRANGE', KEYS[1], 0, #seen - 1)
if head == '' then
  return 'gone'
end
-- This was sent before: no two writes have the same head. It is written once more, because only what a connection
-- itself has written can be waited for.
local is_done = value ~= '' and head == string.sub(value, 1, #seen)
if head ~= seen and not is_done then
  return 'changed'
elseif value == '' then
  redis.call('DEL', KEYS[1])
elseif lives == '' then
  redis.call('SET', KEYS[1], value)
else
  redis.call('SET', KEYS[1], value, 'PX', lives)
end
return 'done'
