-- Puts the oldest letters back to the end of the list, as they were. ARGV: how many.
local count = tonumber(ARGV[1])
local from = redis.call('LRANGE', letters, -count, -1)
local back = {}
for i = #from, 1, -1 do
  back[#back + 1] = original(from[i])
end
in_slices(back, function(...) redis.call('LPUSH', list, ...) end)
if #from > 0 then redis.call('LTRIM', letters, 0, -(#from + 1)) end
return #back
