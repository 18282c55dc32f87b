-- Keys beside the list, all with this name in front.
local list, prefix = KEYS[1], ARGV[1]
local workers, owners, letters = prefix .. 'workers', prefix .. 'owners', prefix .. 'letters'
-- Of each worker, the last token that it was told of, or should have been.
local told = prefix .. 'told'

-- Most elements in one command: what `unpack` can put on the stack is limited.
local SLICE = 1000
local MAGIC = '\0kl1'
local HEAD = '>I4BI4'

local time = redis.call('TIME')
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
local millis = math.floor(micros / 1000)

local function held_by(worker) return prefix .. 'work:' .. worker end
local function sent_to(worker) return prefix .. 'inbox:' .. worker end
local function noted_of(worker) return prefix .. 'attempts:' .. worker end

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

-- The element with its key in front, by the rule of the reader, and the key; `false` if it has none.
local function keyed(element, rule)
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
    local at = string.find(element, string.sub(rule, 2), 1, true)
    if not at then return element, false end
    key = string.sub(element, 1, at - 1)
  end
  return wrap(0, 5, key, element), key
end

local function in_slices(all, call)
  for from = 1, #all, SLICE do
    call(unpack(all, from, math.min(from + SLICE - 1, #all)))
  end
end

-- So many new tokens: the one before the first. They grow also where the last ones were lost with the
-- server, as long as its clock does not go back.
local function tokens(count)
  local last = math.max(tonumber(redis.call('GET', prefix .. 'token') or '0'), micros)
  redis.call('SET', prefix .. 'token', string.format('%.0f', last + count))
  return last
end

-- Fails if a key is of another type, before anything has changed: a script that fails in its middle has
-- done what stands before that.
local function look_at(worker)
  redis.call('LLEN', list)
  redis.call('HLEN', owners)
  redis.call('HLEN', told)
  redis.call('HLEN', held_by(worker))
  redis.call('LLEN', sent_to(worker))
  redis.call('HLEN', noted_of(worker))
end

-- What a worker holds, oldest first: pairs of token and element.
local function held(worker)
  local flat, tokens, elements = redis.call('HGETALL', held_by(worker)), {}, {}
  for at = 1, #flat, 2 do
    -- As numbers, which are compared fast: there may be very many.
    local token = tonumber(flat[at])
    tokens[#tokens + 1], elements[token] = token, flat[at + 1]
  end
  table.sort(tokens)
  local all = {}
  for at, token in ipairs(tokens) do
    all[at] = { string.format('%.0f', token), elements[token] }
  end
  return all
end

local function noted(worker)
  local flat, attempts = redis.call('HGETALL', noted_of(worker)), {}
  for at = 1, #flat, 2 do attempts[flat[at]] = tonumber(flat[at + 1]) end
  return attempts
end

-- Puts all that a worker has back to the front of the list, in its order, and ends the worker.
local function give_back(worker, is_dead)
  look_at(worker)
  local back, keys, attempts = {}, {}, noted(worker)
  local function free(element)
    local key = key_of(element)
    if key then keys[key] = true end
  end
  for _, one in ipairs(held(worker)) do
    local token, element = one[1], one[2]
    free(element)
    local known, flags = envelope(element)
    local count = attempts[token] or known or 0
    local is_suspect = is_dead or (flags ~= nil and has(flags, 2))
    back[#back + 1] = with_attempts(element, count, is_suspect)
  end
  for _, element in ipairs(redis.call('LRANGE', sent_to(worker), 0, -1)) do
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
  redis.call('DEL', held_by(worker), sent_to(worker), noted_of(worker))
  redis.call('HDEL', told, worker)
  redis.call('ZREM', workers, worker)
  return #back
end

-- Gives back what the workers have whose leases have run out: of one of them, because that may be much.
local function give_back_expired()
  local expired = redis.call('ZRANGEBYSCORE', workers, '-inf', '(' .. millis, 'LIMIT', 0, 1)
  if #expired == 0 then return -1 end
  return give_back(expired[1], true)
end

-- Whether a worker has its lease, which lasts for so many milliseconds from now on.
local function renew(worker, ttl)
  if not redis.call('ZSCORE', workers, worker) then return false end
  redis.call('ZADD', workers, millis + ttl, worker)
  return true
end
