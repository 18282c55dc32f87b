-- Keeps the letter of an element, and ends the element. ARGV: prefix, worker, token, key (as in turn),
-- what stands before the element in its letter.
local worker, token, key = ARGV[2], ARGV[3], ARGV[4]
if not redis.call('ZSCORE', workers, worker) then return 0 end
local element = redis.call('HGET', held_by(worker), token)
-- It was kept by a call whose answer was lost.
if not element then return 2 end
redis.call('LPUSH', letters, ARGV[5] .. element)
redis.call('HDEL', held_by(worker), token)
redis.call('HDEL', noted_of(worker), token)
if key ~= '' then
  key = string.sub(key, 2)
  local open, owner = string.match(redis.call('HGET', owners, key) or '', '^(%d+):(.*)$')
  if owner == worker then
    open = tonumber(open) - 1
    if open > 0 then
      redis.call('HSET', owners, key, open .. ':' .. worker)
    else
      redis.call('HDEL', owners, key)
    end
  end
end
return 1
