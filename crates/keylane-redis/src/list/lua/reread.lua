-- The elements in these places, in this order, or nothing for one that is not there: as many as are to go
-- into one answer. ARGV: most bytes, places.
local most_bytes, some, bytes = tonumber(ARGV[1]), {}, 0
for at = 2, #ARGV do
  local element = held_in(ARGV[at])
  local size = element and #element or 0
  if bytes > 0 and bytes + size > most_bytes then break end
  some[#some + 1], bytes = element or false, bytes + size
end
return some
