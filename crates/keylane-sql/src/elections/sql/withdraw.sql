with gone as (
    delete from {candidates} where id = $1 and candidate = $2 returning candidate
)
select pg_notify($3, $4 || '/gone/' || candidate) from gone
