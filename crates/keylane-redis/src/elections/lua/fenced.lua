-- Executes commands if the record of an election is that of a term that goes on. KEYS: the record;
-- the key of each command. ARGV: the token of the term; the history of its grant, or nothing; and
-- for each command its name, the number of words behind its key, and these words. Returns whether
-- it was executed.
local record = redis.call('GET', KEYS[1])
local token, stage = string.match(record or '', '^(%d+)/[^/]+/(%a+)')
if token ~= ARGV[1] or stage == 'ended' then
  return 0
end
if ARGV[2] ~= '' and ARGV[2] ~= history() then
  return 0
end
local at = 3
for command = 2, #KEYS do
  local words = tonumber(ARGV[at + 1])
  local last = at + 1 + words
  redis.call(ARGV[at], KEYS[command], unpack(ARGV, at + 2, last))
  at = last + 1
end
return 1
