-- Removes the consumer if it has nothing pending. With something pending that would be lost.
if not is_ours() then
  return 0
end
local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, group)
if consumers.err then
  return 0
end
for _, flat in ipairs(consumers) do
  local info = named(flat)
  if info.name == consumer and info.pending == 0 then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
    return 1
  end
end
return 0
