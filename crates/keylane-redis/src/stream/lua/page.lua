-- Takes pending entries of all consumers, in the order of their ids: from ARGV[5] to ARGV[6], up to
-- ARGV[7] of them, and no more once they have ARGV[8] bytes. Their counts stay as they are. With ARGV[9]
-- consumers are removed that have nothing pending.
local stands = standing()
if stands ~= OURS then
  return {stands}
end
local most, room = tonumber(ARGV[7]), tonumber(ARGV[8])
local pending = redis.call('XPENDING', stream, group, ARGV[5], ARGV[6], most)
local entries, gone, last, seen = {}, 0, '', 0
for _, one in ipairs(pending) do
  if room <= 0 then
    break
  end
  -- Counts may go up to 2^63. More than an attempt has room for is as good.
  local id, count = one[1], math.min(one[4], 4294967296)
  -- With JUSTID the server leaves its count alone.
  local claimed = redis.call('XCLAIM', stream, group, consumer, 0, id, 'JUSTID')
  last, seen = id, seen + 1
  if claimed[1] then
    local fields = redis.call('XRANGE', stream, id, id)[1][2]
    entries[#entries + 1] = {id, count, fields}
    for _, text in ipairs(fields) do
      room = room - #text
    end
  else
    -- Its body was deleted or trimmed.
    redis.call('XACK', stream, group, id)
    gone = gone + 1
  end
end
if seen < #pending or #pending == most then
  return {OURS, entries, gone, last, '', {}}
end
if ARGV[9] == '1' then
  for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    local other = named(flat)
    if other.pending == 0 and other.name ~= consumer then
      redis.call('XGROUP', 'DELCONSUMER', stream, group, other.name)
    end
  end
end
-- The last one that the group has had tells this stream from another one of its name.
local delivered = group_now()['last-delivered-id']
local known = redis.call('XRANGE', stream, delivered, delivered)[1]
return {OURS, entries, gone, last, delivered, known and known[2] or {}}
