-- A worker begins, or goes on with what it has: that comes first, in its order, under new tokens. With
-- the last of them its turns begin: none that was on its way before takes anything.
-- ARGV: prefix, worker, ttl, is new.
local worker, ttl = ARGV[2], tonumber(ARGV[3])
if ARGV[4] == '1' then
  redis.call('ZADD', workers, millis + ttl, worker)
elseif not renew(worker, ttl) then
  return { 0 }
end
look_at(worker)
local all, attempts, out, fields = held(worker), noted(worker), {}, {}
-- One more, for a worker that has nothing.
local last = tokens(#all + 1)
local told_last = string.format('%.0f', last + #all + 1)
redis.call('HSET', told, worker, told_last)
if #all > 0 then
  redis.call('DEL', held_by(worker), noted_of(worker))
  for i, one in ipairs(all) do
    local token, element = string.format('%.0f', last + i), one[2]
    local known, flags = envelope(element)
    local count = attempts[one[1]]
    if count and count ~= (known or 0) then
      element = with_attempts(element, count, flags ~= nil and has(flags, 2))
    end
    out[#out + 1], out[#out + 2] = token, element
    fields[#fields + 1], fields[#fields + 2] = token, element
  end
  in_slices(fields, function(...) redis.call('HSET', held_by(worker), ...) end)
end
return { 1, told_last, out }
