with dead as (
    select * from unnest($1::bigint[], $2::integer[], $3::smallint[], $4::bytea[])
        as d (sequence, attempts, kind, error)
), moved as (
    delete from {messages} messages using dead
    where messages.sequence = dead.sequence
    returning messages.*, dead.attempts as tried, dead.kind, dead.error
)
insert into {letters} ({kept}, attempts, kind, error)
select {kept}, tried, kind, error from moved
