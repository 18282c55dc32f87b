-- Removes the consumer if it has nothing pending. With something pending that would be lost.
if standing() ~= OURS then
  return 0
end
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local info = named(flat)
  if info.name == consumer and info.pending == 0 then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
    -- Otherwise the next take-over would think that an operator has removed it.
    redis.call('SET', owner, mark .. LEFT)
    return 1
  end
end
return 0
