#!lua
-- Adds entries to a stream: for each, how many words its fields are, and these. In one script, because
-- what a cluster has moved is not found again by a transaction.
local at = 1
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
return 0
