with item as (
    select * from unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::text[], $6::bytea[],
            $9::bigint[])
        with ordinality as i (lane, key, payload, id, version, headers, nonce, place)
), locked as (
    insert into {keys} as known (lane, last)
    select distinct lane, 1 from item order by lane
    on conflict (lane) do update set last = known.last + 1
    returning lane, last, known.ctid as of_key
), stored as (
    insert into {messages} (sequence, lane, key, payload, id, version, headers, nonce)
    select nextval('{sequence}'), lane, key, payload, id, version::numeric, headers, nonce
    from (select item.* from item join locked using (lane) order by place) as in_order
    returning sequence, lane, ctid
), counted as materialized (
    select lane, last, of_key, count(*) as messages, min(stored.ctid) as message
    from stored join locked using (lane) group by lane, last, of_key
), woken as (
    insert into {lanes} (lane, of_key, only_message, ready_at)
    select lane, of_key, case messages when 1 then message end, clock_timestamp()
    from counted where last = 1
    returning lane
)
select sequence, (
    select pg_notify($7, '')::text where $8 or exists (select from woken)
) as told
from stored
