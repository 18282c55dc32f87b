with claim as (
    select * from unnest($2::bytea[], $3::bigint[]) as c (id, token)
), held as (
    select leases.id
    from {leases} leases join claim on claim.id = leases.id and claim.token = leases.token
    where leases.owner = $1
    order by leases.id
    for update of leases
)
update {leases} leases
set owner = '', runs_out = clock_timestamp()
from held
where leases.id = held.id
