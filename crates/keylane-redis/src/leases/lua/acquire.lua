#!lua
-- Grants each lease that is free, or that its owner asks for again. KEYS: the counter, then the
-- leases. ARGV: the owner, then the time to live of each, in milliseconds. Returns for each lease:
-- its token; or -1 - r, where another owner has it for r milliseconds more.
local call, keys, argv = redis.call, KEYS, ARGV
local owner = argv[1]
local time = call('TIME')
local held = call('MGET', unpack(keys))
-- All of it is below 2^53, up to which numbers here are exact.
local token = math.max(tonumber(held[1] or 0), time[1] * 1000000 + time[2] - 1)
local answers, granted = {}, 0
for i = 2, #keys do
  local key, ttl, value = keys[i], argv[i], held[i]
  if value then
    local left = call('PTTL', key)
    if string.sub(value, string.find(value, ' ', 1, true) + 1) == owner then
      -- A call that was given up may be done late: it shortens nothing.
      ttl, value = math.max(ttl, left), nil
    else
      answers[i - 1] = -1 - math.max(left, 0)
    end
  end
  if not value then
    granted = granted + 1
    token = token + 1
    call('SET', key, string.format('%.0f %s', token, owner), 'PX', string.format('%.0f', ttl))
    answers[i - 1] = token
  end
end
if granted > 0 then
  call('SET', keys[1], string.format('%.0f', token))
end
return answers
