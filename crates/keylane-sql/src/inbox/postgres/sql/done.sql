with ours as (
    select lane from {lanes} where lane = $1 and token = $2 and worker = $3
      and not exists (select from {workers} where id = $3 and history <> {here})
    for share
), removed as (
    delete from {messages} messages using ours
    where messages.sequence = $4 and messages.lane = ours.lane and messages.nonce = $5
    returning messages.sequence
)
select (select count(*) from ours) as ours, (select count(*) from removed) as removed
