-- The fields of an answer of XINFO, by their names.
local function named(flat)
  local fields = {}
  for at = 1, #flat, 2 do
    fields[flat[at]] = flat[at + 1]
  end
  return fields
end

-- What XINFO says of the group, if the stream and the group are there.
local function group_now()
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  for _, flat in ipairs(groups) do
    local info = named(flat)
    if info.name == group then
      return info
    end
  end
end

-- Numbers of 64 bits stay text: those of a script are exact up to 2^53.
local function is_less(one, other)
  return #one < #other or (#one == #other and one < other)
end

local function parts(id)
  return string.match(id, '^(%d+)-(%d+)$')
end

local function is_below(one, other)
  local ms, seq = parts(one)
  local other_ms, other_seq = parts(other)
  return is_less(ms, other_ms) or (ms == other_ms and is_less(seq, other_seq))
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

