#!lua
-- Takes permits under the rate of each key and that of all, as the Generic Cell Rate Algorithm
-- says. KEYS: what is known of all, then of each key. ARGV: how many nanoseconds a permit takes and
-- how many permits there are at once, for all and then for each key, both 0 where there is no such
-- rate; and then how many are wanted for each key. Without a rate per key there is one number, for
-- all. Returns two numbers for each: the permits taken, and if they are fewer than wanted, the
-- microseconds until there is one more.
--
-- What is kept is the time at which all that was taken would be used up evenly, in nanoseconds
-- since 1970, as text. Numbers here are exact up to 2^53: seconds and nanoseconds are apart, and
-- differences are of 100 days at most.
local call = redis.call
local SECOND = 1000000000
local time = call('TIME')
local seconds, nanos = tonumber(time[1]), time[2] * 1000
local kept = call('MGET', unpack(KEYS))

local function rate(each, burst, value)
  local rate = { each = tonumber(each), full = each * burst, ahead = 0 }
  if value then
    local ahead = (string.sub(value, 1, -10) - seconds) * SECOND + string.sub(value, -9) - nanos
    rate.ahead = math.max(0, math.min(ahead, rate.full))
    -- The clock was set back: from here on it recovers as ever, if that is kept.
    rate.is_changed = ahead > rate.full
  end
  return rate
end

local function free(rate)
  return math.floor((rate.full - rate.ahead) / rate.each)
end

local function take(rate, count)
  if count > 0 then
    rate.ahead = rate.ahead + count * rate.each
    rate.is_changed = true
  end
end

local function wait(rate)
  return math.max(0, math.ceil((rate.ahead + rate.each - rate.full) / 1000))
end

local function keep(key, rate)
  if not rate.is_changed then
    return
  end
  local at = nanos + rate.ahead
  local value = string.format('%.0f%09.0f', seconds + math.floor(at / SECOND), at % SECOND)
  -- Until then it says something.
  call('SET', key, value, 'PX', string.format('%.0f', math.ceil(rate.ahead / 1000000)))
end

local total = tonumber(ARGV[2]) > 0 and rate(ARGV[1], ARGV[2], kept[1])
local per_key = tonumber(ARGV[4]) > 0
local answers = {}
for i = 1, #ARGV - 4 do
  local wanted = tonumber(ARGV[i + 4])
  local own = per_key and rate(ARGV[3], ARGV[4], kept[i + 1])
  local count = wanted
  count = own and math.min(count, free(own)) or count
  count = total and math.min(count, free(total)) or count
  local after = 0
  if own then
    take(own, count)
    keep(KEYS[i + 1], own)
    after = wait(own)
  end
  if total then
    take(total, count)
    after = math.max(after, wait(total))
  end
  answers[2 * i - 1] = count
  answers[2 * i] = count < wanted and after or 0
end
if total then
  keep(KEYS[1], total)
end
return answers
