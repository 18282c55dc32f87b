-- Cuts off what all groups have had and acked.
if not is_ours() then
  return -1
end
local bound
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local info = named(flat)
  local first
  if info.pending > 0 then
    first = redis.call('XPENDING', stream, info.name)[2]
  else
    local ms, seq = parts(info['last-delivered-id'])
    first = string.format('%.0f-%.0f', ms, seq + 1)
  end
  if not bound or is_below(first, bound) then
    bound = first
  end
end
return bound and redis.call('XTRIM', stream, 'MINID', bound) or 0
