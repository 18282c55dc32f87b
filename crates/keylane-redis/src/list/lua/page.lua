-- The letters above a number, oldest first. ARGV: the number, or nothing; most; most bytes.
local most, most_bytes = tonumber(ARGV[2]), tonumber(ARGV[3])
local passed = up_to(ARGV[1] == '' and '' or in_digits(ARGV[1]))
return oldest(passed, most, most_bytes)
