-- The head of a value, as `value.rs` has it, and the time. Each script begins with this.
local HEAD = '>c2BBI8I8I8I8I8I8c16c8c12I4'
local HEAD_BYTES, SUM_BYTES = 92, 8
local CLAIMED, COMPLETED = 1, 2

-- Tests let time pass by `ahead`; it is nothing everywhere else.
local function time(ahead)
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(ahead)
end

local function sum(head)
  return string.sub(redis.sha1hex(head), 1, SUM_BYTES)
end

local function sealed(...)
  local head = struct.pack(HEAD, ...)
  return head .. sum(head)
end

