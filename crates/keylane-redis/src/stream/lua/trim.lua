-- Cuts off what all groups have had and acked.
local stands = standing()
if stands ~= OURS then
  return stands
end

local HIGHEST = '18446744073709551615'

local function plus_one(number)
  local front, nines = string.match(number, '^(.-)(9*)$')
  local more = front == '' and '1' or string.sub(front, 1, -2) .. (string.sub(front, -1) + 1)
  return more .. string.rep('0', #nines)
end

-- The lowest id above this one, or nothing.
local function after(id)
  local ms, seq = parts(id)
  if seq ~= HIGHEST then
    return ms .. '-' .. plus_one(seq)
  end
  return ms ~= HIGHEST and plus_one(ms) .. '-0' or nil
end

local bound
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local info = named(flat)
  local first
  if info.pending > 0 then
    first = redis.call('XPENDING', stream, info.name)[2]
  else
    first = after(info['last-delivered-id'])
  end
  if first and (not bound or is_below(first, bound)) then
    bound = first
  end
end
-- With the highest id nothing is above it.
if bound then
  return redis.call('XTRIM', stream, 'MINID', bound)
end
return redis.call('XTRIM', stream, 'MAXLEN', 0)
