#!lua
-- Moves the entry ARGV[1] of the stream KEYS[1] to the end of the stream KEYS[2], without the fields that
-- ARGV names from 2 on. 0: it is not there.
local id = ARGV[1]
local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
if not entry then
  return 0
end
local ours, words = {}, {}
for at = 2, #ARGV do
  ours[ARGV[at]] = true
end
local fields = entry[2]
for at = 1, #fields, 2 do
  if not ours[fields[at]] then
    words[#words + 1] = fields[at]
    words[#words + 1] = fields[at + 1]
  end
end
if #words > 7000 then
  -- More than a script can hand to a command.
  return -3
end
-- A script that fails in its middle has done what stands before that.
if not redis.acl_check_cmd('XDEL', KEYS[1], id) then
  return redis.error_reply("NOPERM this user has no permissions to run the 'xdel' command")
end
redis.call('XADD', KEYS[2], '*', unpack(words))
redis.call('XDEL', KEYS[1], id)
return 1
