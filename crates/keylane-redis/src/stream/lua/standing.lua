local stream, owner = KEYS[1], KEYS[2]
local group, consumer, token, history = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- What an owner is told: a later one is there; or what it has taken over is there no more.
local OURS, TAKEN, CHANGED = 1, -1, -2
-- What stands in the key of the owner. Each take-over has a consumer of its own.
local mark = token .. ' ' .. consumer
-- Stands behind it when the owner was told so, or has left: then its consumer had nothing pending. It stays
-- so, whatever comes back under the same names.
local LET_GO, CONSUMER_GONE, LEFT = ' let go', ' consumer gone', ' left'

-- The replication id of the server. It is another one on a replica that was promoted, and after a start.
-- Without the right to ask there is none.
local function history_now()
  local info = redis.pcall('INFO', 'replication')
  return type(info) == 'string' and string.match(info, 'master_replid:(%w+)') or ''
end

local function let_go(how)
  redis.call('SET', owner, mark .. how)
  return CHANGED
end

-- Whether this take-over was the last one, and stream and group are those that were taken over. What is
-- made again does not have the consumer that was made then.
local function standing()
  local held = redis.call('GET', owner)
  if held ~= mark then
    local is_changed = not held or held == mark .. LET_GO or held == mark .. CONSUMER_GONE
    return is_changed and CHANGED or TAKEN
  end
  if history_now() ~= history then
    return let_go(LET_GO)
  end
  local made = redis.pcall('XGROUP', 'CREATECONSUMER', stream, group, consumer)
  if made == 0 then
    return OURS
  elseif made == 1 then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
    return let_go(CONSUMER_GONE)
  end
  return let_go(LET_GO)
end

