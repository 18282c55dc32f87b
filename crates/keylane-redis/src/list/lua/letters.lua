-- The oldest letters, oldest first. ARGV: how many to pass over, most, most bytes.
local passed, most, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local some, bytes = {}, 0
for at = passed + 1, passed + math.min(most, SLICE) do
  local letter = redis.call('LINDEX', letters, -at)
  if not letter or (#some > 0 and bytes + #letter > most_bytes) then break end
  some[#some + 1], bytes = letter, bytes + #letter
end
return some
