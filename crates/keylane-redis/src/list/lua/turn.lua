-- One round trip of a worker: it renews its lease, says what has settled, and takes elements.
-- ARGV: worker, ttl, rule, most to take, most bytes, most sent to a worker, is cyclic,
--   the number of the last call that it knows to be done, or nothing if it takes nothing,
--   the number of this one,
--   the place up to which it was handed again what it had when it entered, or nothing if that was all;
--   how many workers whose inboxes are among the keys, and which;
--   how many done, then place and key (with `k` in front, or nothing) of each;
--   how many to drop, the same; how many notes, place and attempts of each;
--   how many again, place of each.
local worker, ttl, rule = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local most, most_bytes, most_sent = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local is_cyclic, heard, number, after = ARGV[7] == '1', ARGV[8], ARGV[9], ARGV[10]
local at = 10
local function next_argument()
  at = at + 1
  return ARGV[at]
end

if not renew(worker, ttl) then return unknown() end
look_at_all()
local inboxes = {}
for peer = 1, tonumber(next_argument()) do
  local name = next_argument()
  inboxes[name] = KEYS[9 + peer]
  redis.call('LLEN', inboxes[name])
end
if heard ~= '' then
  local known = redis.call('HGET', told, worker) or '0'
  -- What the worker knows to be done is not: this server has an earlier state.
  if is_below(known, heard) then return { 3 } end
  -- This request has come late, or twice, or the answer of one before it was lost. What the worker was not
  -- told of comes first, when it enters again: nothing may be taken that is behind it.
  if known ~= heard then return { 2 } end
  redis.call('HSET', told, worker, number)
end

-- Most keys have one that is open, and it is here.
local one = '1:' .. worker
local function opened_here(owned)
  if owned == one then return 1, worker end
  return opened(owned)
end

-- What has settled: O(1) for each, however much there is.
local less, again = {}, {}
local function settle(place, key)
  if redis.call('HDEL', work, place) == 0 then return end
  if key ~= '' then less[key] = (less[key] or 0) + 1 end
end
local gone = {}
for _ = 1, tonumber(next_argument()) do
  local place, key = next_argument(), next_argument()
  gone[#gone + 1] = place
  if is_cyclic then
    local element = redis.call('HGET', work, place)
    if element then again[#again + 1] = with_attempts(element, 0, false) end
  end
  settle(place, key)
end
for _ = 1, tonumber(next_argument()) do
  local place, key = next_argument(), next_argument()
  gone[#gone + 1] = place
  settle(place, key)
end
local fields = {}
for key in pairs(less) do fields[#fields + 1] = string.sub(key, 2) end
for from = 1, #fields, SLICE do
  local part = { unpack(fields, from, math.min(from + SLICE - 1, #fields)) }
  local known, free, keep = redis.call('HMGET', owners, unpack(part)), {}, {}
  for i, key in ipairs(part) do
    local open, owner = opened_here(known[i])
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
if #gone > 0 and redis.call('EXISTS', noted) == 1 then
  in_slices(gone, function(...) redis.call('HDEL', noted, ...) end)
end
in_slices(again, function(...) redis.call('LPUSH', list, ...) end)

for _ = 1, tonumber(next_argument()) do
  local place, attempts = next_argument(), next_argument()
  if redis.call('HEXISTS', work, place) == 1 then
    redis.call('HSET', noted, place, attempts)
  end
end

-- The answer has no more bytes of elements than it may, but for a single one that has more.
local bytes, is_full = 0, false
local function fits(element)
  is_full = is_full or (bytes > 0 and bytes + #element > most_bytes)
  if not is_full then bytes = bytes + #element end
  return not is_full
end

-- What is handed out once more, under a new token: place, token and element, one after the other.
local back, came = {}, 0
local function hand_back(places, elements)
  if #places == 0 then return end
  for i, token in ipairs(tokens(#places)) do
    back[#back + 1] = places[i]
    back[#back + 1] = token
    back[#back + 1] = elements[i]
  end
end
-- What was given back comes again.
local places, elements = {}, {}
for _ = 1, tonumber(next_argument()) do
  local place = next_argument()
  local element = not is_full and held_in(place)
  if element and fits(element) then places[#places + 1], elements[#elements + 1] = place, element end
  if not is_full then came = came + 1 end
end
hand_back(places, elements)

-- What the worker had when it entered comes before everything else.
if after ~= '' and most > 0 and not is_full then
  places, elements = {}, {}
  for _, place in ipairs(in_order(redis.call('HKEYS', work), after)) do
    local element = held_in(place)
    if #places >= most or not fits(element) then
      is_full = true
      break
    end
    places[#places + 1], elements[#elements + 1] = place, element
  end
  hand_back(places, elements)
  most = most - #places
  after = is_full and (places[#places] or after) or ''
end
if after ~= '' or is_full then most = 0 end

-- What is handed out for the first time, as token and element, one after the other. The token is the place.
local out = {}
local function hand_out(elements)
  if #elements == 0 then return end
  local first = #out + 1
  for i, token in ipairs(tokens(#elements)) do
    out[#out + 1] = token
    out[#out + 1] = elements[i]
  end
  for from = first, #out, SLICE do
    redis.call('HSET', work, unpack(out, from, math.min(from + SLICE - 1, #out)))
  end
end

-- What others have sent here comes before the rest of the list.
local chunk = 16
local function size_chunk(left)
  local average = #out > 0 and math.max(1, bytes / (#out / 2)) or 65536
  local room = math.floor((most_bytes - bytes) / average)
  return math.max(1, math.min(left, SLICE / 2, chunk, room))
end
while most > 0 and not is_full do
  local mine = {}
  for i, element in ipairs(redis.call('LRANGE', inbox, 0, size_chunk(most) - 1)) do
    if not fits(element) then break end
    mine[i] = element
  end
  if #mine == 0 then break end
  hand_out(mine)
  redis.call('LTRIM', inbox, #mine, -1)
  most, chunk = most - #mine, chunk * 2
end

-- The element with its key in front, by the rule of the reader, and the key; `false` if it has none.
local function keyed(element)
  local _, flags, length = envelope(element)
  if flags then
    return element, flags % 2 == 1 and string.sub(element, 14, 13 + length)
  end
  if rule == '' then return element, false end
  local how, key = string.sub(rule, 1, 1), nil
  if how == 'j' then
    local good, value = pcall(cjson.decode, element)
    if good and type(value) == 'table' then key = value[string.sub(rule, 2)] end
    if type(key) == 'number' then key = string.format('%.17g', key) end
    if type(key) ~= 'string' then return element, false end
  else
    local found = string.find(element, string.sub(rule, 2), 1, true)
    if not found then return element, false end
    key = string.sub(element, 1, found - 1)
  end
  return wrap(0, 5, key, element), key
end

-- A worker whose lease has run out, or that is not known and owns this key: what it has is to be given back.
-- Workers whose inboxes are to be declared. With one of these the list is looked at again.
local lost = redis.call('ZRANGEBYSCORE', workers, '-inf', '(' .. millis, 'LIMIT', 0, 1)[1] or ''
local lost_key, unmet = '', {}
local is_blocked, lengths, looked = false, {}, 0

-- Whether an element of this key may be sent to the worker that owns it.
local function reaches(who, key)
  if lengths[who] == nil then
    if not redis.call('ZSCORE', workers, who) then
      -- It holds nothing, and owns nothing, whatever there is of it.
      lost, lost_key, is_blocked = who, 'k' .. key, true
      return false
    end
    if not inboxes[who] then
      unmet[#unmet + 1], is_blocked = who, true
      return false
    end
    lengths[who] = redis.call('LLEN', inboxes[who])
  end
  is_blocked = lengths[who] >= most_sent
  return not is_blocked
end

while most > 0 and not is_full and looked < 10000 and not is_blocked do
  local part = redis.call('LRANGE', list, -size_chunk(most), -1)
  if #part == 0 then break end
  local elements, keys, fields, places = {}, {}, {}, {}
  for i = #part, 1, -1 do
    local element, key = keyed(part[i])
    elements[#elements + 1], keys[#keys + 1] = element, key
    if key and not places[key] then
      fields[#fields + 1] = key
      places[key] = #fields
    end
  end
  local known, open, owner, changed = {}, {}, {}, {}
  if #fields > 0 then known = redis.call('HMGET', owners, unpack(fields)) end
  for i, key in ipairs(fields) do
    open[key], owner[key] = opened_here(known[i])
  end
  local mine, theirs, done = {}, {}, 0
  for i, element in ipairs(elements) do
    local key = keys[i]
    local who = key and owner[key] or worker
    if who ~= worker then
      if not reaches(who, key) then break end
      theirs[who] = theirs[who] or {}
      table.insert(theirs[who], element)
      lengths[who] = lengths[who] + 1
    else
      if not fits(element) then break end
      mine[#mine + 1] = element
    end
    if key then
      open[key], owner[key], changed[key] = open[key] + 1, who, true
    end
    done = i
  end
  hand_out(mine)
  local set = {}
  for key in pairs(changed) do
    set[#set + 1] = key
    set[#set + 1] = open[key] .. ':' .. owner[key]
  end
  in_slices(set, function(...) redis.call('HSET', owners, ...) end)
  for who, all in pairs(theirs) do
    in_slices(all, function(...) redis.call('RPUSH', inboxes[who], ...) end)
  end
  if done > 0 then redis.call('LTRIM', list, 0, -(done + 1)) end
  most, looked, chunk = most - #mine, looked + done, chunk * 2
end

return {
  1, redis.call('LLEN', list), redis.call('LLEN', inbox), is_blocked and 1 or 0,
  after, came, lost, lost_key, unmet, back, out,
}
