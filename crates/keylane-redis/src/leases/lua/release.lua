#!lua flags=allow-oom
-- Ends each lease that is held as claimed.
-- KEYS: the leases. ARGV: what each lease holds if it is held as claimed.
local held = redis.call('MGET', unpack(KEYS))
local ended = {}
for i = 1, #KEYS do
  if held[i] == ARGV[i] then
    ended[#ended + 1] = KEYS[i]
  end
end
if #ended > 0 then
  redis.call('DEL', unpack(ended))
end
return #ended
