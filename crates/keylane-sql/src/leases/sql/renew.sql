with claim as (
    select * from unnest($2::bytea[], $3::bigint[], $4::bigint[]) as c (id, token, ttl)
), held as (
    select leases.id, claim.ttl
    from {leases} leases join claim on claim.id = leases.id and claim.token = leases.token
    where leases.owner = $1
    order by leases.id
    for update of leases
)
update {leases} leases
set runs_out = clock_timestamp() + held.ttl * interval '1 microsecond'
from held
where leases.id = held.id
returning leases.id
