-- A worker begins, or goes on with what it has. What was on its way before takes nothing any more.
-- ARGV: worker, ttl, is new, the number of the last call that it knows to be done, that of this one, the
-- highest token that it was given.
local worker, ttl, heard, number, highest = ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[5], ARGV[6]
if ARGV[3] == '1' then
  redis.call('ZADD', workers, millis + ttl, worker)
elseif not renew(worker, ttl) then
  return unknown()
end
look_at_all()
local known = redis.call('HGET', told, worker) or '0'
redis.call('HSET', told, worker, number)
-- What settles under an older token can never be what is handed out from now on.
if is_below(redis.call('GET', last_token) or '0', highest) then
  redis.call('SET', last_token, highest)
end
for _, place in ipairs(redis.call('HKEYS', noted)) do
  if redis.call('HEXISTS', work, place) == 0 then redis.call('HDEL', noted, place) end
end
return { is_below(known, heard) and 3 or 1 }
