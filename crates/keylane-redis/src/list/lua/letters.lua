-- The oldest letters, oldest first. ARGV: how many to pass over, most, most bytes.
local passed, most, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
return oldest(passed, most, most_bytes)
