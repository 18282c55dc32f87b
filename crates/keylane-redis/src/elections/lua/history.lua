-- The replication id of the server: it is another one when its data may not be what it was before.
-- Without the right to ask there is one text for ever.
local function history()
  local info = redis.pcall('INFO', 'replication')
  return type(info) == 'string' and string.match(info, 'master_replid:(%w+)') or 'unknown'
end
