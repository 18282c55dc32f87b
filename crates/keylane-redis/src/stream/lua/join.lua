-- The member ARGV[1] of a group, or a new one, is well for another ARGV[3] milliseconds. Members that were
-- here first come first.
local members, ttl = KEYS[1], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local member = ARGV[1]
if member == '' then
  member = string.format('%015.0f-%s', now, ARGV[2])
end
redis.call('ZREMRANGEBYSCORE', members, '-inf', now)
-- Where the clock was set back, those who have gone would stay for as long as that.
for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', members, string.format('(%.0f', now + ttl), '+inf')) do
  redis.call('ZADD', members, now + ttl, ahead)
end
redis.call('ZADD', members, now + ttl, member)
redis.call('PEXPIRE', members, 2 * ttl)
return {member, redis.call('ZRANGE', members, 0, -1)}
