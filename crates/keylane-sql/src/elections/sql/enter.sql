with entered as (
    insert into {candidates} as known (id, candidate, rank, runs_out)
    values ($1, $2, $3, clock_timestamp() + $4 * interval '1 microsecond')
    on conflict (id, candidate) do update
    set runs_out = excluded.runs_out,
        rank = case when known.runs_out > excluded.runs_out - $4 * interval '1 microsecond'
            then known.rank else excluded.rank end,
        place = case when known.runs_out > excluded.runs_out - $4 * interval '1 microsecond'
            then known.place else excluded.place end
    returning candidate, rank, place
), old as (
    select candidates.candidate
    from entered join {candidates} candidates
        on candidates.id = $1 and candidates.candidate <> entered.candidate
    where candidates.runs_out <= clock_timestamp()
    for update of candidates skip locked
), removed as (
    delete from {candidates} candidates
    using old
    where candidates.id = $1 and candidates.candidate = old.candidate
    returning candidates.candidate
), gone as (
    select candidate from removed
    union all
    select was.candidate
    from entered join {candidates} was on was.id = $1 and was.candidate = entered.candidate
    where was.place <> entered.place
), once as (
    select string_agg(pg_notify($5, $6 || '/gone/' || candidate)::text, '') as told from gone
), queue as (
    select candidate, rank, place from {candidates}
    where id = $1 and candidate <> $2 and runs_out > clock_timestamp()
    union all
    select candidate, rank, place from entered
)
