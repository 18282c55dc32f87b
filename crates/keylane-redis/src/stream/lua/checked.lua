-- Executes commands if the stream is ours: ARGV, from the fifth on, has for each how many words it is, and
-- these. In one script, because what a cluster has moved is not found again by a transaction.
local answers = { standing() }
local at = 5
while answers[1] == OURS and at <= #ARGV do
  local words = tonumber(ARGV[at])
  answers[#answers + 1] = redis.pcall(unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
return answers
