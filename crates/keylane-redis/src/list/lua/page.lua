-- The letters above a number, oldest first. ARGV: the number, or nothing; most; most bytes.
local most, most_bytes = tonumber(ARGV[2]), tonumber(ARGV[3])
local passed = up_to(ARGV[1] == '' and '' or in_digits(ARGV[1]))
local some, bytes = {}, 0
for at = passed + 1, passed + math.min(most, SLICE) do
  local letter = redis.call('LINDEX', letters, -at)
  if not letter or (#some > 0 and bytes + #letter > most_bytes) then break end
  some[#some + 1], bytes = letter, bytes + #letter
end
return some
