-- What is wrong with the state of a list, as lines. KEYS: the list. ARGV: prefix.
local list, prefix = KEYS[1], ARGV[1]
local wrong = {}
local function say(...) wrong[#wrong + 1] = string.format(...) end

local function key_of(element)
  if string.sub(element, 1, 4) ~= '\0kl1' or #element < 13 then return end
  local _, flags, length = struct.unpack('>I4BI4', element, 5)
  if flags % 2 == 0 or 13 + length > #element then return end
  return string.sub(element, 14, 13 + length)
end

local known, counts = {}, {}
local function count(worker, element)
  local key = key_of(element)
  if not key then return end
  local of = counts[key] or {}
  of[worker] = (of[worker] or 0) + 1
  counts[key] = of
end

local last = redis.call('GET', prefix .. 'token') or '0'
local function is_above(one, other)
  if #one ~= #other then return #one > #other end
  return one > other
end
for _, worker in ipairs(redis.call('ZRANGE', prefix .. 'workers', 0, -1)) do
  known[worker] = true
  local work = redis.call('HGETALL', prefix .. 'work:' .. worker)
  local held = {}
  for at = 1, #work, 2 do
    held[work[at]] = true
    count(worker, work[at + 1])
    if is_above(work[at], last) then say('token %s is higher than the last', work[at]) end
  end
  for _, element in ipairs(redis.call('LRANGE', prefix .. 'inbox:' .. worker, 0, -1)) do
    if not key_of(element) then say('an element without a key is in the inbox of %s', worker) end
    count(worker, element)
  end
  local noted = redis.call('HGETALL', prefix .. 'attempts:' .. worker)
  for at = 1, #noted, 2 do
    -- Of what has become a letter it is said until it has settled.
    if (held[noted[at]] or false) == (noted[at + 1] == 'letter') then
      say('attempts of %s, which %s does not hold', noted[at], worker)
    end
  end
end

local owners = redis.call('HGETALL', prefix .. 'owners')
for at = 1, #owners, 2 do
  local key = owners[at]
  local open, worker = string.match(owners[at + 1], '^(%d+):(.*)$')
  local of = counts[key] or {}
  if not known[worker] then say('%s is of %s, which is unknown', key, worker) end
  if of[worker] ~= tonumber(open) then
    say('%s has %s of %s, and not %s', worker, tostring(of[worker]), key, open)
  end
  of[worker] = nil
  for other, n in pairs(of) do say('%s has %d of %s, which is of %s', other, n, key, worker) end
  counts[key] = nil
end
for key, of in pairs(counts) do
  for worker, n in pairs(of) do say('%s has %d of %s, which is of no worker', worker, n, key) end
end

for _, worker in ipairs(redis.call('HKEYS', prefix .. 'told')) do
  if not known[worker] then say('what %s was told is there, which is unknown', worker) end
end
local all = redis.call('KEYS', prefix .. '*')
for _, name in ipairs(all) do
  local what, worker = string.match(string.sub(name, #prefix + 1), '^(%a+):(.*)$')
  if what and not known[worker] then say('%s is of a worker that is unknown', name) end
end
return wrong
