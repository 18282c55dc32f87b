-- Adds the entry ARGV[6] to the stream KEYS[3], with the fields from ARGV[7] on, and acks it as ARGV[5]
-- says. What the entry has of these fields from before is left out.
local stands = standing()
if stands ~= OURS then
  return stands
end
local id = ARGV[6]
if #redis.call('XPENDING', stream, group, id, id, 1, consumer) == 0 then
  -- It was acked elsewhere, or another consumer has it now.
  return 0
end
local ours, letter = {}, {}
for at = 7, #ARGV, 2 do
  ours[ARGV[at]] = true
end
local entry = redis.call('XRANGE', stream, id, id)[1]
local fields = entry and entry[2] or {}
for at = 1, #fields, 2 do
  if not ours[fields[at]] then
    letter[#letter + 1] = fields[at]
    letter[#letter + 1] = fields[at + 1]
  end
end
for at = 7, #ARGV do
  letter[#letter + 1] = ARGV[at]
end
if #letter > 7000 then
  -- More than a script can hand to a command.
  return -3
end
redis.call('XADD', KEYS[3], '*', unpack(letter))
ack(ARGV[5], {id}, 1, 1)
return 1
