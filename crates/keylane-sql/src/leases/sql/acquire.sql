with wish as (
    select * from unnest($2::bytea[], $3::bytea[], $4::bigint[]) as w (id, key_start, ttl)
), granted as (
    insert into {leases} as held (id, key_start, owner, token, runs_out)
    select id, key_start, $1, nextval('{tokens}'),
           clock_timestamp() + ttl * interval '1 microsecond'
    from wish
    where not exists (
        select from {leases} other
        where other.id = wish.id and other.owner not in ($1, '')
          and other.runs_out > clock_timestamp()
    )
    order by id
    on conflict (id) do update
    set owner = excluded.owner, token = nextval('{tokens}'),
        runs_out = case held.owner when excluded.owner
            then greatest(held.runs_out, excluded.runs_out) else excluded.runs_out
        end
    where held.owner in (excluded.owner, '') or held.runs_out <= clock_timestamp()
    returning held.id, held.token
)
select wish.id, granted.token,
       (extract(epoch from other.runs_out - clock_timestamp()) * 1000000)::bigint as remaining
from wish
left join granted on granted.id = wish.id
left join {leases} other on granted.id is null and other.id = wish.id
