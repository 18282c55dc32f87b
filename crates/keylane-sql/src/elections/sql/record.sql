with written as (
    insert into {terms} as known (id, key_start, token, leader, stage, chosen, history)
    values ($1, $2, $3, $4, $5, $6, {here})
    on conflict (id) do update
    set replaced = known.token || '/' || known.leader || '/' || case known.stage
            when 0 then 'began' when 1 then 'leaving' else 'ended' end
            || '/' || coalesce(known.chosen, ''),
        leader = case when (known.token, known.stage) <= (excluded.token, excluded.stage)
            then excluded.leader else known.leader end,
        chosen = case when (known.token, known.stage) <= (excluded.token, excluded.stage)
            then excluded.chosen else known.chosen end,
        history = case when (known.token, known.stage) <= (excluded.token, excluded.stage)
            then excluded.history else known.history end,
        stage = case when (known.token, known.stage) <= (excluded.token, excluded.stage)
            then excluded.stage else known.stage end,
        token = greatest(known.token, excluded.token)
    returning replaced, token = $3 and stage = $5 as is_ours
), gone as (
    delete from {candidates} candidates
    using written
    where written.is_ours and candidates.id = $1 and candidates.candidate = $4
), freed as (
    update {leases} leases
    set owner = '', runs_out = clock_timestamp()
    from written
    where written.is_ours and $5 = 2 and leases.id = $1 and leases.token = $3 and leases.owner <> ''
)
select replaced,
       case when is_ours then pg_notify($7, $8 || '/term/' || $4 || '/' || coalesce($6, ''))::text end as told
from written
