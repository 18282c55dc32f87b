-- Acks as ARGV[5] says, and notes attempts: ARGV[6] ids to be acked, and then ids with their counts.
local stands = standing()
if stands ~= OURS then
  return stands
end
local acks = tonumber(ARGV[6])
ack(ARGV[5], ARGV, 7, 6 + acks)
for at = 7 + acks, #ARGV, 2 do
  redis.call('XCLAIM', stream, group, consumer, 0, ARGV[at], 'RETRYCOUNT', ARGV[at + 1], 'JUSTID')
end
return acks
