-- Puts a value in the place of one that is still as it was seen, or takes that away.
local seen, lives, value = unpack(ARGV)
local head = redis.call('GETRANGE', KEYS[1], 0, #seen - 1)
if head == '' then
  return 'gone'
elseif head ~= seen then
  -- No two writes have the same head: this one was sent before, or it was somebody else's.
  return value ~= '' and head == string.sub(value, 1, #seen) and 'done' or 'changed'
elseif value == '' then
  redis.call('DEL', KEYS[1])
elseif lives == '' then
  redis.call('SET', KEYS[1], value)
else
  redis.call('SET', KEYS[1], value, 'PX', lives)
end
return 'done'
