#!lua flags=no-writes
-- Returns what a lease holds, nil if it is free, and for how many milliseconds more it lasts.
-- KEYS: the lease.
return {redis.call('MGET', KEYS[1])[1], redis.call('PTTL', KEYS[1])}
