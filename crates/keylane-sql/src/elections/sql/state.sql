, ordered as (
    select queue.candidate, row_number() over places as n, lag(queue.candidate) over places as ahead
    from queue left join {terms} terms on terms.id = $1
    window places as (
        order by coalesce(queue.candidate = terms.chosen, false) desc, queue.rank, queue.place
    )
)
select leases.token as held,
       (extract(epoch from leases.runs_out - clock_timestamp()) * 1000000)::bigint as remaining,
       terms.token, terms.leader, terms.stage, terms.chosen,
       (select candidate from ordered where n = 1) as next,
       (select ahead from ordered where candidate = $2) as ahead
from once
left join {leases} leases
    on leases.id = $1 and leases.owner <> '' and leases.runs_out > clock_timestamp()
left join {terms} terms on terms.id = $1
