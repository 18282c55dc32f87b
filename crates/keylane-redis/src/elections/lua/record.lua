-- Records a term, and removes its leader from the candidates. The end of a term also ends its
-- lease. ARGV: the token, the leader, and the stage of the term, and its record. Returns whether it
-- was refused, and the record before.
local token, leader, stage, record = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local ORDER = { began = 0, leaving = 1, ended = 2 }

-- Tokens have 64 bits and stay text: numbers here are exact up to 2^53.
local function is_less(one, other)
  return #one < #other or (#one == #other and one < other)
end

local was = call('GET', term)
if was then
  local token_then, stage_then = string.match(was, '^(%d+)/[^/]+/(%a+)')
  if not ORDER[stage_then] then
    return redis.error_reply('ERR the record of the term is not from keylane: remove ' .. term)
  end
  if is_less(token, token_then) then
    return { 1, was }
  end
  if token == token_then and ORDER[stage] < ORDER[stage_then] then
    return { 0, was }
  end
end
forget()
call('SET', term, record)
call('ZREM', line, leader)
call('ZREM', ends, leader)
local held = stage == 'ended' and call('GET', lease)
if held and string.match(held, '^%d+') == token then
  call('DEL', lease)
end
publish()
return { 0, was }
