-- A worker ends, and what it has goes back. ARGV: prefix, worker.
if not redis.call('ZSCORE', workers, ARGV[2]) then return -1 end
return give_back(ARGV[2], false)
