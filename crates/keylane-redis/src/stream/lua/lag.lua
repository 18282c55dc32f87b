-- How far the group is behind: entries that it has not read, or -1 if that is not known; entries that are
-- pending; the age of the oldest of them in milliseconds, by its id and the clock of the server. It changes nothing.
local info = group_now()
if not info then return {-1, 0, 0} end
local oldest
if info.pending > 0 then
  oldest = redis.call('XPENDING', stream, group)[2]
else
  local unread = redis.call('XRANGE', stream, '(' .. info['last-delivered-id'], '+', 'COUNT', 1)[1]
  oldest = unread and unread[1]
end
local age = 0
if oldest then
  local time, ms = redis.call('TIME'), parts(oldest)
  age = math.max(0, time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ms))
end
-- Servers before 7.0 do not say it, and later ones not if entries were deleted that the group has not read.
return {info.lag or -1, info.pending, age}
