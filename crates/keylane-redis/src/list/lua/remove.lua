-- Removes letters, in this order. ARGV: '1' if they go back to the end of the list, as they were; their
-- numbers. Returns how many of them were there.
local is_redrive = ARGV[1] == '1'
-- A script that fails in its middle has done what stands before that.
if not redis.acl_check_cmd('LREM', letters, -1, '') then
  return redis.error_reply("NOPERM this user has no permissions to run the 'lrem' command")
end
local removed = 0
for which = 2, #ARGV do
  local number = in_digits(ARGV[which])
  local at = up_to(number)
  local letter = at > 0 and redis.call('LINDEX', letters, -at)
  if letter and number_of(letter) == number then
    if is_redrive then redis.call('LPUSH', list, original(letter)) end
    redis.call('LREM', letters, -1, letter)
    removed = removed + 1
  end
end
return removed
