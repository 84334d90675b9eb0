-- The time. Scripts that need it as a number begin with this.
-- Tests let time pass by `ahead`; it is nothing everywhere else.
local function time(ahead)
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(ahead)
end

