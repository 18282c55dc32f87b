-- A worker ends, and what it has goes back. ARGV: worker.
if not redis.call('ZSCORE', workers, ARGV[1]) then return -1 end
return give_back(ARGV[1], false)
