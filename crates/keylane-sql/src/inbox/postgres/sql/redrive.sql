with letter as (
    delete from {letters} where sequence = any($1) returning *
), locked as (
    insert into {keys} as known (lane, last, redriven)
    select distinct lane, 1, 1 from letter order by lane
    on conflict (lane) do update set last = known.last + 1, redriven = known.last + 1
    returning lane, last, known.ctid as of_key
), stored as (
    insert into {messages} ({kept}) select {kept} from letter join locked using (lane)
    returning sequence
), woken as (
    insert into {lanes} (lane, of_key, ready_at)
    select lane, of_key, clock_timestamp() from locked where last = 1
)
select sequence, (select pg_notify($2, '')::text) as told from stored
