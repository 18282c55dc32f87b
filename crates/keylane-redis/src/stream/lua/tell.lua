-- Acks as ARGV[4] says, and notes attempts: ARGV[5] ids to be acked, and then ids with their counts.
if not is_ours() then
  return -1
end
local acks = tonumber(ARGV[5])
ack(ARGV[4], ARGV, 6, 5 + acks)
for at = 6 + acks, #ARGV, 2 do
  local noted = redis.pcall(
    'XCLAIM', stream, group, consumer, 0, ARGV[at], 'RETRYCOUNT', ARGV[at + 1], 'JUSTID')
  -- Without the group there is nothing to count.
  if noted.err and not string.find(noted.err, 'NOGROUP', 1, true) then
    return redis.error_reply(noted.err)
  end
end
return acks
