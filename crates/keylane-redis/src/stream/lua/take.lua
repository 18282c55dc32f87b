-- Takes a stream over. ARGV[5] is where its group begins if there is none. The rest is what an owner of
-- before knows, or nothing: ARGV[6] up to where the group had settled everything, ARGV[7] and ARGV[8] its
-- token and its consumer, and from ARGV[9] on the id and the fields of an entry that it has seen.
local start, resume, theirs = ARGV[5], ARGV[6], ARGV[8]
local former = ARGV[7] .. ' ' .. theirs
local held = redis.call('GET', owner)
local last = held and string.match(held, '^%d+')
if last and is_less(token, last) then
  return {0, last}
end

-- Whether it is the stream that the owner of before knows. One that was made again may have the same ids.
local function is_known()
  local id = ARGV[9]
  if not id then
    return false
  end
  local entry = redis.pcall('XRANGE', stream, id, id)[1]
  local fields = entry and entry[2] or {}
  if #fields ~= #ARGV - 9 then
    return false
  end
  for at, text in ipairs(fields) do
    if text ~= ARGV[9 + at] then
      return false
    end
  end
  return true
end

-- Whether an operator has removed the consumer of the owner of before, which has not left, and no other
-- owner was there since.
local function is_removed()
  if held ~= former then
    return held == former .. CONSUMER_GONE
  end
  return redis.call('XGROUP', 'CREATECONSUMER', stream, group, theirs) == 1
end

local there, known, how = group_now(), is_known(), 0
if not there then
  if resume ~= '' then
    start = known and resume or '0'
  end
  local made = redis.pcall('XGROUP', 'CREATE', stream, group, start, 'MKSTREAM')
  if made.err then
    return redis.error_reply(made.err)
  end
  how = 1
elseif known and is_below(resume, there['last-delivered-id']) and is_removed() then
  -- What was pending was removed with it.
  local set = redis.pcall('XGROUP', 'SETID', stream, group, resume)
  if set.err then
    -- So that the next try finds it removed as well.
    redis.call('XGROUP', 'DELCONSUMER', stream, group, theirs)
    return redis.error_reply(set.err)
  end
  how = 2
end
redis.call('XGROUP', 'CREATECONSUMER', stream, group, consumer)
-- Last of all: a take-over that has failed leaves what the next one has to know.
redis.call('SET', owner, mark)
return {1, how, history_now(), known and 1 or 0}
