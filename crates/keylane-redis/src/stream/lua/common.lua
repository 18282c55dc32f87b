local stream, owner = KEYS[1], KEYS[2]
local group, consumer, token = ARGV[1], ARGV[2], ARGV[3]

-- Whether no later owner has taken the stream over.
local function is_ours()
  return redis.call('GET', owner) == token
end

-- The fields of an answer of XINFO, by their names.
local function named(flat)
  local fields = {}
  for at = 1, #flat, 2 do
    fields[flat[at]] = flat[at + 1]
  end
  return fields
end

local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function is_below(one, other)
  local ms, seq = parts(one)
  local other_ms, other_seq = parts(other)
  return ms < other_ms or (ms == other_ms and seq < other_seq)
end

local function is_only_group()
  return #redis.call('XINFO', 'GROUPS', stream) == 1
end

-- Acks the entries whose ids are in `ids` from `first` to `last`. How: 'ack' leaves them in the stream,
-- 'ackdel' deletes what all groups have acked, 'del' deletes if there is no other group.
local function ack(how, ids, first, last)
  local deletes = how == 'del' and first <= last and is_only_group()
  for from = first, last, 500 do
    local to = math.min(from + 499, last)
    if how == 'ackdel' then
      redis.call('XACKDEL', stream, group, 'ACKED', 'IDS', to - from + 1, unpack(ids, from, to))
    else
      redis.call('XACK', stream, group, unpack(ids, from, to))
    end
    if deletes then
      redis.call('XDEL', stream, unpack(ids, from, to))
    end
  end
end

