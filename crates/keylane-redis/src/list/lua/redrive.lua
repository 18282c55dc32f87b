-- Puts the oldest letters back to the end of the list, as they were. ARGV: how many.
local count = tonumber(ARGV[1])
local from = redis.call('LRANGE', letters, -count, -1)
local back = {}
for i = #from, 1, -1 do
  local letter = from[i]
  local _, flags, length = envelope(letter)
  -- The length of the headers stands behind their key, in front of them.
  local headers = struct.unpack('>I4', letter, 14 + length)
  local element = string.sub(letter, 18 + length + headers)
  back[#back + 1] = with_attempts(element, 0, false)
end
in_slices(back, function(...) redis.call('LPUSH', list, ...) end)
if #from > 0 then redis.call('LTRIM', letters, 0, -(#from + 1)) end
return #back
