-- Takes a stream over: ARGV[4] is where its group begins if there is none, ARGV[5] up to where a group
-- that has gone had settled everything, or nothing.
local held = redis.call('GET', owner)
if held and (#held > #token or (#held == #token and held > token)) then
  return {0, held}
end
redis.call('SET', owner, token)
local start = ARGV[4]
if ARGV[5] ~= '' then
  start = '0'
  local info = redis.pcall('XINFO', 'STREAM', stream)
  if not info.err and not is_below(named(info)['last-generated-id'], ARGV[5]) then
    start = ARGV[5]
  end
end
local made = redis.pcall('XGROUP', 'CREATE', stream, group, start, 'MKSTREAM')
if not made.err then
  return {1, 1}
elseif string.find(made.err, 'BUSYGROUP', 1, true) then
  return {1, 0}
end
return redis.error_reply(made.err)
