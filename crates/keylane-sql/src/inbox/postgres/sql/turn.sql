with elsewhere as materialized (
    select history, {here} as here from {workers} where id = $1 and history <> {here}
), leaving as materialized (
    select * from unnest($2::bytea[], $3::bigint[], $4::bigint[], $5::tid[], $6::tid[])
        as leaving (lane, token, last, place, of_key)
    where not exists (select from elsewhere)
), unchanged as materialized (
    select leaving.token, leaving.place, key.ctid as of_key
    from leaving cross join lateral (
        select ctid from {keys} keys
        where keys.ctid = leaving.of_key and keys.lane = leaving.lane and keys.last = leaving.last
        for update skip locked
    ) as key
), drained as (
    delete from {lanes} lanes
    where lanes.ctid = any(array(select place from unchanged))
      and (lanes.token in (select token from unchanged)) is true and (lanes.worker = $1) is true
    returning lanes.lane, lanes.token
), forgotten as (
    delete from {keys} keys where keys.ctid = any(array(
        select of_key from unchanged where (token in (select token from drained)) is true
    ))
), stayed as materialized (
    select lane, token from leaving where (token in (select token from drained)) is not true
), told as materialized (
    select * from stayed
    union all
    select * from unnest($7::bytea[], $8::bigint[]) where not exists (select from elsewhere)
), ours as materialized (
    select lane from drained
    union all
    select claim.lane
    from told cross join lateral (
        select lane from {lanes} lanes
        where lanes.worker = $1 and lanes.lane = told.lane and lanes.token = told.token
        for share
    ) as claim
), removed as (
    delete from {messages} messages
    where messages.sequence = any($9) and (messages.lane in (select lane from ours)) is true
      and (messages.nonce in (select unnest($20::bigint[]))) is true
), noted as (
    update {messages} messages set attempts = greatest(messages.attempts, tried.attempts)
    from unnest($10::bigint[], $11::integer[], $21::bigint[]) as tried (sequence, attempts, nonce)
    where messages.sequence = tried.sequence and (messages.nonce = tried.nonce) is true
      and (messages.lane in (select lane from ours)) is true
), free as materialized (
    select ctid from {lanes}
    where worker is null and ready_at >= to_timestamp($19)
      and case when xmax = 0 then true else $19 = 0 end and (
        select runs_out > clock_timestamp() from {workers} where id = $1
    )
      and not exists (select from elsewhere)
    order by ready_at
    limit $12
    for update skip locked
), claimed as (
    update {lanes} lanes set worker = $1, token = nextval('{tokens}')
    where lanes.ctid = any(array(select ctid from free))
    returning lanes.*, lanes.ctid
), wanted as (
    select claim.lane, claim.token, claim.crashes, claim.after, claim.count, key.last, key.redriven,
        tidsend(claim.ctid) as place, tidsend(key.ctid) as of_key,
        case key.last when 1 then claim.only_message end as only_message
    from (
        select want.lane, claim.token, claim.crashes, claim.ctid, claim.of_key, null as only_message,
            want.after, want.count
        from unnest($13::bytea[], $14::bigint[], $15::bigint[], $16::integer[])
            as want (lane, token, after, count)
        cross join lateral (
            select token, crashes, ctid, of_key from {lanes} lanes
            where lanes.worker = $1 and lanes.lane = want.lane and lanes.token = want.token
              and not exists (select from elsewhere)
            offset 0
        ) as claim
        union all
        select lane, token, crashes, ctid, of_key, only_message, 0, $17 from claimed
    ) as claim cross join lateral (
        select last, redriven, ctid from {keys} keys
        where keys.ctid = claim.of_key and keys.lane = claim.lane
        union all
        select last, redriven, ctid from {keys} keys where keys.lane = claim.lane
        limit 1
    ) as key
), page as (
    select wanted.lane as of_lane, token, last, redriven, crashes, place, of_key, message.*
    from wanted left join lateral (
        select sequence, key, payload, id, version, headers, accepted_at, attempts, nonce
        from {messages} messages
        where messages.ctid = wanted.only_message and messages.lane = wanted.lane
        union all
        select * from (
            select sequence, key, payload, id, version, headers, accepted_at, attempts, nonce
            from {messages} messages
            where messages.lane = wanted.lane and messages.sequence > wanted.after
            order by messages.sequence limit wanted.count
        ) as in_order
        limit case when wanted.only_message is null then wanted.count else 1 end
    ) as message on true
), sized as (
    select *, {before} as before from page
)
select null::bigint as sequence, null::bytea as key, null::bytea as payload, null::bytea as id,
    null::text as version, null::bytea as headers, null::double precision as accepted_at,
    0 as what, lane as of_lane, null::integer as attempts, null::smallint as crashes,
    null::bigint as token, null::bigint as last, null::bigint as redriven,
    null::bytea as place, null::bytea as of_key, null::bigint as nonce
from told where (lane in (select lane from ours)) is not true
union all
select null, null, null, null, null, null, null,
    1, lane, null, null, null, null, null, null, null, null
from stayed
union all
select null, null, null, null, null, null, date_part('epoch', max(ready_at)),
    2, null, null, null, null, null, null, null, null, null
from claimed
union all
select null, null, null, convert_to(history, 'UTF8'), here, null, null,
    4, null, null, null, null, null, null, null, null, null
from elsewhere
union all
select sequence, key, case when before < $18 or before = 0 then payload end, id, version::text,
    headers, date_part('epoch', accepted_at),
    3, of_lane, attempts, crashes, token, last, redriven, place, of_key, nonce
from sized
