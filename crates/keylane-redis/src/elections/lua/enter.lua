-- Enters a candidate, or keeps it entered. ARGV: its id, its rank, and for how many milliseconds.
-- Returns the election.
local id, rank, ttl = ARGV[3], ARGV[4], ARGV[5]
local has_gone = forget()
if not call('ZSCORE', line, id) then
  -- A place in the line is a number below 2^53: the rank in 16 bits, and the order in 37. The next
  -- one of a rank comes behind the last one that is there, so the order begins anew when none is.
  local SPAN = 2 ^ 37
  local first = rank * SPAN
  local behind = first + SPAN - 1
  local last = call('ZRANGE', line, text(behind), text(first), 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
  local place = last[2] and math.min(last[2] + 1, behind) or first
  call('ZADD', line, text(place), id)
end
call('ZADD', ends, text(now() + ttl), id)
-- Candidates that are all gone leave nothing behind.
local latest = call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
call('PEXPIREAT', line, text(latest))
call('PEXPIREAT', ends, text(latest))
return has_gone and publish() or seen()
