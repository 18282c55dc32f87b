#!lua flags=allow-oom
-- Lets each lease run on that is held as claimed. It takes no memory, and goes on where there is
-- none. KEYS: the leases. ARGV: the time to live of all in milliseconds, or 'each'; what each lease
-- holds if it is held as claimed; and where it is 'each', the time to live of each. Returns the
-- places of those that are not held.
local call, keys, argv = redis.call, KEYS, ARGV
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = call('MGET', unpack(keys))
local ttl, at
local function ends(after)
  if after ~= ttl then
    ttl, at = after, string.format('%.0f', now + after)
  end
  return at
end
local common, count, lost = argv[1] ~= 'each' and ends(argv[1]), #keys, {}
for i = 1, count do
  if held[i] == argv[i + 1] then
    -- A point in time is passed on to replicas and to the log as it is. A time to live is
    -- converted.
    call('PEXPIREAT', keys[i], common or ends(argv[count + i + 1]))
  else
    lost[#lost + 1] = i
  end
end
return lost
