-- Gives back what a worker has whose lease has run out, or that is not known and owns a key all the same.
-- ARGV: worker, that key (with `k` in front) or nothing. Returns -1 if it has its lease.
local worker, key = ARGV[1], ARGV[2]
local until_then = redis.call('ZSCORE', workers, worker)
if until_then and tonumber(until_then) >= millis then return -1 end
local back = give_back(worker, true)
if key ~= '' then
  key = string.sub(key, 2)
  local _, owner = opened(redis.call('HGET', owners, key))
  if owner == worker then redis.call('HDEL', owners, key) end
end
return back
