-- Records the answer of a claim that is plainly one's own; all else is for core's rules.
local ahead, fence, attempt_id, write, margin, answer = unpack(ARGV)
local now = time(ahead)
local value = redis.call('GET', KEYS[1])
if not value or #value < HEAD_BYTES + SUM_BYTES then
  return false
end
local head = string.sub(value, 1, HEAD_BYTES)
if sum(head) ~= string.sub(value, HEAD_BYTES + 1, HEAD_BYTES + SUM_BYTES) then
  return false
end
local magic, version, state, at, created_at, expires_at, retention, remember, of, by, _, sums,
  record_bytes = struct.unpack(HEAD, head)
if version ~= 1 or state ~= CLAIMED or of ~= tonumber(fence) or by ~= attempt_id then
  return false
end
expires_at = math.max(expires_at, now + math.min(retention, 3600000))
-- What lay behind the record goes: the request that was kept for want of an outcome.
local begins = HEAD_BYTES + SUM_BYTES
local record = string.sub(value, begins + 1, begins + record_bytes)
head = sealed(magic, version, COMPLETED, now, created_at, expires_at, retention, remember, of, by,
  write, sums, record_bytes)
local lives = expires_at + remember - now + margin
redis.call('SET', KEYS[1], head .. record .. answer, 'PX', lives)
return expires_at
