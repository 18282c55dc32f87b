-- The keys. All that a script may touch are declared: while their slot moves, a cluster has it wait until
-- all of them are on one node. The last three are those of one worker.
local list, workers, owners, told, last_token, letters, work, inbox, noted = unpack(KEYS, 1, 9)
-- owners: of each key, how many elements are open, and with which worker.
-- told: of each worker, the number of its last call that was done.
-- work: of each place, the element. It is the token of the first hand-out, and elements are in its order.
-- noted: of each place, the attempts; or that its letter is kept, and no element is there any more.
local KEPT = 'letter'

-- Most elements in one command: what `unpack` can put on the stack is limited.
local SLICE = 1000
local MAGIC = '\0kl1'
local HEAD = '>I4BI4'

local time = redis.call('TIME')
local micros = time[1] .. string.format('%06d', time[2])
local millis = time[1] * 1000 + math.floor(time[2] / 1000)

-- Tokens, places, times in microseconds and the numbers of calls may be above 2^53, up to which numbers are
-- exact here. They stay text, without zeros in front.
local LAST = '18446744073709551615'
local function is_below(one, other)
  if #one ~= #other then return #one < #other end
  return one < other
end

-- The parts that are numbers: how often 10^15, as text, and the rest.
local function parts(number)
  return string.sub(number, 1, -16), tonumber(string.sub(number, -15))
end

local function whole(head, rest)
  return string.format(head == '' and '%.0f' or head .. '%015.0f', rest)
end

local function plus(number, more)
  local head, rest = parts(number)
  if rest + more < 1e15 then return whole(head, rest + more) end
  return whole(plus(head == '' and '0' or head, 1), rest + more - 1e15)
end

-- Those that are above `after`, lowest first.
local function in_order(numbers, after)
  local heads, rests = {}, {}
  for _, number in ipairs(numbers) do
    if is_below(after, number) then
      local head, rest = parts(number)
      if not rests[head] then heads[#heads + 1], rests[head] = head, {} end
      table.insert(rests[head], rest)
    end
  end
  table.sort(heads, is_below)
  local sorted = {}
  for _, head in ipairs(heads) do
    -- As numbers, which are compared fast: there may be very many.
    table.sort(rests[head])
    for _, rest in ipairs(rests[head]) do sorted[#sorted + 1] = whole(head, rest) end
  end
  return sorted
end

-- An element in an envelope: attempts, flags, length of the key, key, body. See `element.rs`.
local function envelope(element)
  if string.sub(element, 1, 4) ~= MAGIC or #element < 13 then return end
  local attempts, flags, length = struct.unpack(HEAD, element, 5)
  if 13 + length > #element then return end
  return attempts, flags, length
end

-- The key of an element in an envelope; `false` if it has none.
local function key_of(element)
  local _, flags, length = envelope(element)
  return flags ~= nil and flags % 2 == 1 and string.sub(element, 14, 13 + length)
end

local function wrap(attempts, flags, key, body)
  return MAGIC .. struct.pack(HEAD, attempts, flags, #key) .. key .. body
end

-- Flags: 1 has a key, 2 was here when its worker died, 4 came as plain bytes.
local function has(flags, flag) return flags % (2 * flag) >= flag end

-- The element with other attempts. What nothing is known of is plain bytes again.
local function with_attempts(element, attempts, is_suspect)
  local known, flags, length = envelope(element)
  if not known then
    if attempts == 0 and not is_suspect then return element end
    return wrap(attempts, is_suspect and 6 or 4, '', element)
  end
  if has(flags, 2) ~= is_suspect then flags = is_suspect and flags + 2 or flags - 2 end
  if attempts == 0 and not is_suspect and has(flags, 4) then
    return string.sub(element, 14 + length)
  end
  return MAGIC .. struct.pack(HEAD, attempts, flags, length) .. string.sub(element, 14)
end

-- The element of a letter, as it was.
local function original(letter)
  local _, _, length = envelope(letter)
  -- The length of the headers stands behind their key, in front of them.
  local headers = struct.unpack('>I4', letter, 14 + length)
  return with_attempts(string.sub(letter, 18 + length + headers), 0, false)
end

-- The letters behind so many of the oldest, oldest first, within these limits; one at least, if there is one.
local function oldest(passed, most, most_bytes)
  local some, bytes = {}, 0
  for at = passed + 1, passed + math.min(most, SLICE) do
    local letter = redis.call('LINDEX', letters, -at)
    if not letter or (#some > 0 and bytes + #letter > most_bytes) then break end
    some[#some + 1], bytes = letter, bytes + #letter
  end
  return some
end

-- The element that is held in this place, with the attempts that were noted; nothing if there is none.
local function held_in(place)
  local element = redis.call('HGET', work, place)
  if not element then return end
  local known, flags = envelope(element)
  local attempts = tonumber(redis.call('HGET', noted, place) or nil)
  if not attempts or attempts == (known or 0) then return element end
  return with_attempts(element, attempts, flags ~= nil and has(flags, 2))
end

local function in_slices(all, call)
  for from = 1, #all, SLICE do
    call(unpack(all, from, math.min(from + SLICE - 1, #all)))
  end
end

-- So many new tokens. They grow also where the last ones were lost with the server, as long as its clock
-- does not go back.
local function tokens(count)
  local last = redis.call('GET', last_token) or '0'
  if is_below(last, micros) then last = micros end
  local new = {}
  for at = 1, count do
    last = plus(last, 1)
    new[at] = last
  end
  if is_below(LAST, last) then error({ err = 'ERR there are no more tokens for this list' }) end
  redis.call('SET', last_token, last)
  return new
end

-- Fails if a key is of another type, before anything has changed: a script that fails in its middle has
-- done what stands before that.
local function look_at_all()
  redis.call('LLEN', list)
  redis.call('HLEN', owners)
  redis.call('HLEN', told)
  redis.call('HLEN', work)
  redis.call('LLEN', inbox)
  redis.call('HLEN', noted)
end

-- How many of a key are open, and with whom.
local function opened(owned)
  if not owned then return 0 end
  local count, who = string.match(owned, '^(%d+):(.*)$')
  return tonumber(count or 0), who
end

-- Puts all that the worker has back to the front of the list, in its order, and ends the worker.
local function give_back(worker, is_dead)
  look_at_all()
  local back, keys, elements = {}, {}, {}
  local function free(element)
    local key = key_of(element)
    if key then keys[key] = true end
  end
  for _, place in ipairs(in_order(redis.call('HKEYS', work), '')) do
    local element = held_in(place)
    free(element)
    local known, flags = envelope(element)
    local is_suspect = is_dead or (flags ~= nil and has(flags, 2))
    back[#back + 1] = with_attempts(element, known or 0, is_suspect)
  end
  for _, element in ipairs(redis.call('LRANGE', inbox, 0, -1)) do
    free(element)
    local known, flags = envelope(element)
    if known then element = with_attempts(element, known, has(flags, 2)) end
    back[#back + 1] = element
  end
  local freed = {}
  for key in pairs(keys) do freed[#freed + 1] = key end
  in_slices(freed, function(...) redis.call('HDEL', owners, ...) end)
  local turned = {}
  for at = #back, 1, -1 do turned[#turned + 1] = back[at] end
  in_slices(turned, function(...) redis.call('RPUSH', list, ...) end)
  redis.call('DEL', work, inbox, noted)
  redis.call('HDEL', told, worker)
  redis.call('ZREM', workers, worker)
  return #back
end

-- Whether a worker has its lease, which lasts for so many milliseconds from now on.
local function renew(worker, ttl)
  if not redis.call('ZSCORE', workers, worker) then return false end
  redis.call('ZADD', workers, millis + ttl, worker)
  return true
end

-- What a worker is told that has no lease: it knows by the last token whether this server has been there
-- before.
local function unknown() return { 0, redis.call('GET', last_token) or '0' } end
