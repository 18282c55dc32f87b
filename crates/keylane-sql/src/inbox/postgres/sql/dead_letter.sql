with ours as (
    select lane from {lanes} where lane = $2 and token = $3 and worker = $1
      and not exists (select from {workers} where id = $1 and history <> {here})
    for share
), moved as (
    delete from {messages} messages using ours
    where messages.sequence = $4 and messages.lane = ours.lane and messages.nonce = $8
    returning messages.*
), kept as (
    insert into {letters} ({kept}, attempts, kind, error)
    select {kept}, $5, $6, $7 from moved
)
select count(*) as ours from ours
