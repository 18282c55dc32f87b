-- Takes pending entries of all consumers, in the order of their ids: from ARGV[4] to ARGV[5], up to
-- ARGV[6] of them, and no more once they have ARGV[7] bytes. Their counts stay as they are. With ARGV[8]
-- consumers are removed that have nothing pending.
if not is_ours() then
  return {-1}
end
local most, room = tonumber(ARGV[6]), tonumber(ARGV[7])
local pending = redis.call('XPENDING', stream, group, ARGV[4], ARGV[5], most)
local entries, gone, last, seen = {}, 0, '', 0
for _, one in ipairs(pending) do
  if room <= 0 then
    break
  end
  local id, count = one[1], one[4]
  local claimed = redis.call('XCLAIM', stream, group, consumer, 0, id, 'RETRYCOUNT', count)
  last, seen = id, seen + 1
  if claimed[1] then
    local fields = claimed[1][2]
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
  return {0, entries, gone, last, ''}
end
if ARGV[8] == '1' then
  for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    local other = named(flat)
    if other.pending == 0 and other.name ~= consumer then
      redis.call('XGROUP', 'DELCONSUMER', stream, group, other.name)
    end
  end
end
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local info = named(flat)
  if info.name == group then
    return {1, entries, gone, last, info['last-delivered-id']}
  end
end
