-- One round trip of a worker: it renews its lease, says what has settled, and takes elements.
-- ARGV: prefix, worker, ttl, rule, most to take, most bytes, most sent to a worker, is cyclic,
--   the last token that the worker was told of, or nothing if it takes nothing;
--   how many done, then token and key (with `k` in front, or nothing) of each;
--   how many to drop, the same; how many notes, token and attempts of each;
--   how many again, token of each.
local worker, ttl, rule = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local most, most_bytes, most_sent = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local is_cyclic = ARGV[8] == '1'
local at = 9
local function next_argument()
  at = at + 1
  return ARGV[at]
end

if not renew(worker, ttl) then return { 0 } end
look_at(worker)
-- This request has come late, or twice, or the answer of one before it was lost. What the worker was not
-- told of comes first, when it enters again: nothing may be taken that is behind it.
if ARGV[9] ~= '' and redis.call('HGET', told, worker) ~= ARGV[9] then return { 2 } end
local work, inbox = held_by(worker), sent_to(worker)

-- How many of a key are open, and with whom. Most keys have one, and it is here.
local one = '1:' .. worker
local function opened(owned)
  if not owned then return 0 end
  if owned == one then return 1, worker end
  local count, who = string.match(owned, '^(%d+):(.*)$')
  return tonumber(count or 0), who
end

-- What has settled: O(1) for each, however much there is.
local settled, less, again = 0, {}, {}
local function settle(token, key)
  if redis.call('HDEL', work, token) == 0 then return end
  settled = settled + 1
  if key ~= '' then less[key] = (less[key] or 0) + 1 end
end
local count, gone = tonumber(next_argument()), {}
for _ = 1, count do
  local token, key = next_argument(), next_argument()
  gone[#gone + 1] = token
  if is_cyclic then
    local element = redis.call('HGET', work, token)
    if element then again[#again + 1] = with_attempts(element, 0, false) end
  end
  settle(token, key)
end
for _ = 1, tonumber(next_argument()) do
  local token, key = next_argument(), next_argument()
  gone[#gone + 1] = token
  settle(token, key)
end
local fields = {}
for key in pairs(less) do fields[#fields + 1] = string.sub(key, 2) end
for from = 1, #fields, SLICE do
  local part = { unpack(fields, from, math.min(from + SLICE - 1, #fields)) }
  local known, free, keep = redis.call('HMGET', owners, unpack(part)), {}, {}
  for i, key in ipairs(part) do
    local open, owner = opened(known[i])
    if owner == worker then
      open = open - less['k' .. key]
      if open > 0 then
        keep[#keep + 1] = key
        keep[#keep + 1] = open .. ':' .. worker
      else
        free[#free + 1] = key
      end
    end
  end
  if #free > 0 then redis.call('HDEL', owners, unpack(free)) end
  if #keep > 0 then redis.call('HSET', owners, unpack(keep)) end
end
if #gone > 0 and redis.call('EXISTS', noted_of(worker)) == 1 then
  in_slices(gone, function(...) redis.call('HDEL', noted_of(worker), ...) end)
end
in_slices(again, function(...) redis.call('LPUSH', list, ...) end)

for _ = 1, tonumber(next_argument()) do
  local token, attempts = next_argument(), next_argument()
  if redis.call('HEXISTS', work, token) == 1 then
    redis.call('HSET', noted_of(worker), token, attempts)
  end
end

-- What is handed out, as token and element, one after the other.
local out, bytes = {}, 0
local function hand_out(elements)
  if #elements == 0 then return end
  local last, fields = tokens(#elements), {}
  for i, element in ipairs(elements) do
    local token = string.format('%.0f', last + i)
    out[#out + 1] = token
    out[#out + 1] = element
    fields[#fields + 1] = token
    fields[#fields + 1] = element
  end
  in_slices(fields, function(...) redis.call('HSET', work, ...) end)
  redis.call('HSET', told, worker, out[#out - 1])
end

-- What was given back comes again, under a new token.
local returned = {}
for _ = 1, tonumber(next_argument()) do
  local token = next_argument()
  local element = redis.call('HGET', work, token)
  if element then
    local known, flags = envelope(element)
    local attempts = redis.call('HGET', noted_of(worker), token)
    local is_suspect = flags ~= nil and has(flags, 2)
    attempts = tonumber(attempts or known or 0)
    if attempts ~= (known or 0) then
      local body = element
      element = with_attempts((keyed(body, rule)), attempts, is_suspect)
    end
    returned[#returned + 1] = element
    redis.call('HDEL', work, token)
    redis.call('HDEL', noted_of(worker), token)
  end
end
hand_out(returned)

local given_back = give_back_expired()

-- What others have sent here comes before the rest of the list.
local chunk = 16
local function size_chunk(left)
  local average = #out > 0 and math.max(1, bytes / (#out / 2)) or 65536
  local room = math.floor((most_bytes - bytes) / average)
  return math.max(1, math.min(left, SLICE / 2, chunk, room))
end
while most > 0 and bytes < most_bytes do
  local size = size_chunk(most)
  local part = redis.call('LRANGE', inbox, 0, size - 1)
  if #part == 0 then break end
  local mine = {}
  for i, element in ipairs(part) do
    mine[i], bytes = element, bytes + #element
    if bytes >= most_bytes then break end
  end
  hand_out(mine)
  redis.call('LTRIM', inbox, #mine, -1)
  most, chunk = most - #mine, chunk * 2
end

local is_blocked, lengths, looked = false, {}, 0
local function is_full(other)
  if not lengths[other] then lengths[other] = redis.call('LLEN', sent_to(other)) end
  return lengths[other] >= most_sent
end
while most > 0 and bytes < most_bytes and looked < 10000 and not is_blocked do
  local part = redis.call('LRANGE', list, -size_chunk(most), -1)
  if #part == 0 then break end
  local elements, keys, fields, places = {}, {}, {}, {}
  for i = #part, 1, -1 do
    local element, key = keyed(part[i], rule)
    elements[#elements + 1], keys[#keys + 1] = element, key
    if key and not places[key] then
      fields[#fields + 1] = key
      places[key] = #fields
    end
  end
  local known, open, owner, changed = {}, {}, {}, {}
  if #fields > 0 then known = redis.call('HMGET', owners, unpack(fields)) end
  for i, key in ipairs(fields) do
    open[key], owner[key] = opened(known[i])
  end
  local mine, theirs, done = {}, {}, 0
  for i, element in ipairs(elements) do
    local key = keys[i]
    local who = key and owner[key] or worker
    if who ~= worker and lengths[who] == nil and not redis.call('ZSCORE', workers, who) then
      -- A worker that is not known holds nothing, and owns nothing, whatever there is of it.
      give_back(who, true)
      redis.call('HDEL', owners, key)
      is_blocked = 'again'
      break
    end
    if who ~= worker then
      if is_full(who) then
        is_blocked = true
        break
      end
      theirs[who] = theirs[who] or {}
      table.insert(theirs[who], element)
      lengths[who] = lengths[who] + 1
    else
      mine[#mine + 1] = element
      bytes = bytes + #element
    end
    if key then
      open[key], owner[key], changed[key] = open[key] + 1, who, true
    end
    done = i
    if bytes >= most_bytes then break end
  end
  if is_blocked == 'again' then
    -- The list has changed: what was looked at is read again in the next round trip.
    done = 0
  else
    hand_out(mine)
    local set = {}
    for key in pairs(changed) do
      set[#set + 1] = key
      set[#set + 1] = open[key] .. ':' .. owner[key]
    end
    in_slices(set, function(...) redis.call('HSET', owners, ...) end)
    for who, all in pairs(theirs) do
      in_slices(all, function(...) redis.call('RPUSH', sent_to(who), ...) end)
    end
    if done > 0 then redis.call('LTRIM', list, 0, -(done + 1)) end
    most, looked, chunk = most - #mine, looked + done, chunk * 2
  end
end

return {
  1, settled, redis.call('LLEN', list), redis.call('LLEN', inbox),
  is_blocked == true and 1 or 0, given_back, out,
}
