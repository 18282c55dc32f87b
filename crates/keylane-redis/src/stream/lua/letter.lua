-- Adds the entry ARGV[5] to the stream KEYS[3], with the fields from ARGV[6] on, and acks it as ARGV[4]
-- says. What the entry has of these fields from before is left out.
if not is_ours() then
  return -1
end
local id = ARGV[5]
if #redis.call('XPENDING', stream, group, id, id, 1) == 0 then
  return 0
end
local ours, letter = {}, {}
for at = 6, #ARGV, 2 do
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
for at = 6, #ARGV do
  letter[#letter + 1] = ARGV[at]
end
if #letter > 7000 then
  -- More than a script can hand to a command.
  return -2
end
redis.call('XADD', KEYS[3], '*', unpack(letter))
ack(ARGV[4], {id}, 1, 1)
return 1
