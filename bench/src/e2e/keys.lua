-- The load: the same POST again and again, with a key or without, and its figures as one line.
-- Arguments: how many keys take turns (0 for none, -1 for a new one each time), and their prefix.

local authorization = "Authorization: Bearer sk_bench_4eC39HqLyjWDarjtT1zdp7dc\r\n"
local body = '{"amount":2000,"currency":"eur","source":"tok_visa","description":"order 1042"}'
local before, after, keys
local sent = 0

function init(args)
  keys = tonumber(args[1])
  local head = "POST /v1/charges HTTP/1.1\r\nHost: " .. wrk.host .. ":" .. wrk.port .. "\r\n"
    .. authorization .. "Content-Type: application/json\r\nContent-Length: " .. #body .. "\r\n"
  if keys == 0 then
    before, after = head .. "X-Request-Id: " .. args[2], "\r\n\r\n" .. body
  else
    before, after = head .. "Idempotency-Key: " .. args[2], "\r\n\r\n" .. body
  end
end

-- Every load pays for the same work here, so that the client is as busy with all of them.
function request()
  sent = sent + 1
  local number = sent
  if keys > 0 then
    number = sent % keys
  end
  return before .. (100000000000 + number) .. after
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format(
    '{"requests":%d,"failed":%d,"micros":%d,"p50":%d,"p99":%d}\n',
    summary.requests, failed, summary.duration, latency:percentile(50), latency:percentile(99)
  ))
end
