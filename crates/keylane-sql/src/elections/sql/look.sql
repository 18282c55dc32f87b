with queue as (
    select candidate, rank, place from {candidates}
    where id = $1 and runs_out > clock_timestamp()
), once as (
    select 1
)
