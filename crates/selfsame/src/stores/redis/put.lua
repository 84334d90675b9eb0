-- Puts an entry into a cache, unless what is there says more. `aside.rs` has the ranks, and what an entry
-- begins with.
local ENDED, DONE, ERASED = 2, 3, 4
local rank, fence, lives, value = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local head = redis.call('GETRANGE', KEYS[1], 0, 11)
if head ~= '' then
  if #head < 12 or string.sub(head, 1, 3) ~= string.sub(value, 1, 3) then
    -- Of another version, or somebody else's: it ends by itself.
    return 0
  end
  local _, _, was, of = struct.unpack('>c2BBI8', head)
  if was == ERASED and rank ~= ERASED or was == DONE and rank <= ENDED then
    return 0
  end
  -- Among what is not final the later claim counts, and its end more than its beginning.
  if rank <= ENDED and (of > fence or of == fence and was > rank) then
    return 0
  end
end
redis.call('SET', KEYS[1], value, 'PX', lives)
return 1
