-- Gives back what the workers have whose leases have run out. ARGV: prefix.
return give_back_expired()
