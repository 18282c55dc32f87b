select setval('{tokens}', highest) from {tokens}, (
    select greatest((select max(token) from {terms}), (select max(token) from {leases}))
) as there (highest)
where (highest > last_value or highest = last_value and not is_called) and not pg_is_in_recovery()
