-- Removes a candidate. ARGV: its id.
local record = call('GET', term)
local before = next_one(record)
local has_gone = forget()
call('ZREM', line, ARGV[3])
call('ZREM', ends, ARGV[3])
-- Those behind the first one wait for it alone.
if has_gone or next_one(record) ~= before then
  publish()
end
return 1
