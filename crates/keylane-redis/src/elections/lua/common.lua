-- An election: the lease of its term, the record of its last term, the candidates in their line (by
-- rank, and then by the order in which they entered), and when each entry ends.
local call = redis.call
local lease, term, line, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- Where changes are published, and the name of this election there.
local channel, name = ARGV[1], ARGV[2]

-- The time of the server in milliseconds.
local function now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Numbers above 10^14 would be written with an exponent.
local function text(number)
  return string.format('%.0f', number)
end

-- Removes the candidates whose entries have ended. Returns whether there were any.
local function forget()
  local some, last = false, text(now())
  while true do
    local gone = call('ZRANGE', ends, '-inf', last, 'BYSCORE', 'LIMIT', 0, 1000)
    if #gone == 0 then
      return some
    end
    call('ZREM', line, unpack(gone))
    call('ZREM', ends, unpack(gone))
    some = true
  end
end

-- The candidate that the leader has chosen if it is entered, or else the first in the line.
local function next_one(record)
  local chosen = record and string.match(record, '^%d+/[^/]+/[^/]+/(.+)$')
  if chosen and call('ZSCORE', line, chosen) then
    return chosen
  end
  return call('ZRANGE', line, 0, 0)[1]
end

-- The token of the lease, how long it lasts, the record of the last term, and which candidate is
-- next: false for what is not there.
local function seen()
  local held, record = call('GET', lease), call('GET', term)
  local token = held and string.match(held, '^%d+')
  local left = token and math.max(call('PTTL', lease), 0)
  return { token or false, left or false, record, next_one(record) or false }
end

-- Publishes the election as it is now, to all that wait for a change. A user who may not publish
-- changes it all the same: those that wait look now and then.
local function publish()
  local is = seen()
  local message = { is[1] or '', is[3] or '', is[4] or '', name }
  redis.pcall('PUBLISH', channel, table.concat(message, '\n'))
  return is
end
