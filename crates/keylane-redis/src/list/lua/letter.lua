-- Keeps the letter of an element, and ends the element. ARGV: worker, place, key (as in turn), the head and
-- the headers of the letter. Returns 0 if the worker has no such element, and nothing was kept.
local worker, place, key = ARGV[1], ARGV[2], ARGV[3]
if not redis.call('ZSCORE', workers, worker) then return 0 end
local element = redis.call('HGET', work, place)
if not element then
  -- Kept by a call whose answer was lost.
  return redis.call('HGET', noted, place) == KEPT and 1 or 0
end
keep(ARGV[4], ARGV[5], element)
redis.call('HDEL', work, place)
-- Until it has settled.
redis.call('HSET', noted, place, KEPT)
if key ~= '' then
  key = string.sub(key, 2)
  local open, owner = opened(redis.call('HGET', owners, key))
  if owner == worker and open > 1 then
    redis.call('HSET', owners, key, (open - 1) .. ':' .. worker)
  elseif owner == worker then
    redis.call('HDEL', owners, key)
  end
end
return 1
