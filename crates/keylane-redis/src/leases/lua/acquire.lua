#!lua
-- Grants each lease that is free, or that its owner asks for again. KEYS: the counter, then the
-- leases. ARGV: the owner, then the time to live of each, in milliseconds. Returns for each lease:
-- its token, as text; or the number -1 - r, where another owner has it for r milliseconds more.
local call, keys, argv = redis.call, KEYS, ARGV

-- Tokens have 64 bits and stay text: numbers here are exact up to 2^53.
local function plus_one(number)
  local front, nines = string.match(number, '^(.-)(9*)$')
  local more = front == '' and '1' or string.sub(front, 1, -2) .. (string.sub(front, -1) + 1)
  return more .. string.rep('0', #nines)
end

local function is_less(one, other)
  return #one < #other or (#one == #other and one < other)
end

local owner = argv[1]
local time = call('TIME')
local held = call('MGET', unpack(keys))
local micros = time[1] .. string.format('%06d', time[2])
local last, next = nil, plus_one(held[1] or '0')
if is_less(next, micros) then
  next = micros
end
local answers = {}
for i = 2, #keys do
  local key, ttl, value = keys[i], argv[i], held[i]
  if value then
    local left = call('PTTL', key)
    if string.sub(value, string.find(value, ' ', 1, true) + 1) == owner then
      -- A call that was given up may be done late: it shortens nothing.
      ttl, value = math.max(ttl, left), nil
    else
      answers[i - 1] = -1 - math.max(left, 0)
    end
  end
  if not value then
    last, next = next, plus_one(next)
    call('SET', key, last .. ' ' .. owner, 'PX', string.format('%.0f', ttl))
    answers[i - 1] = last
  end
end
if last then
  call('SET', keys[1], last)
end
return answers
