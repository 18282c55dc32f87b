//! One round trip of a source.
//!
//! Its claims read the messages of a lane in the same statement that claims it, and so by one
//! snapshot. `free` has the places of the rows as they are when they are locked, `claimed` looks there
//! by the snapshot: it does not see a row that was changed in between. Another worker had that lane,
//! and what that one has done would be seen as waiting.

use std::collections::HashMap;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{PAYLOAD, Postgres, SEQUENCE, count_column, from_column, message_of, to_column};
use crate::error::SqlError;
use crate::inbox::lane::LaneId;
use crate::inbox::turn::{Answer, Brought, Claimed, Found, Turn};
use crate::lent::Lent;

/// Joins of what was sent are lateral, and its memberships hashed (`is true` keeps them from becoming
/// joins, and from choosing an index): the planner knows neither how many rows an array has nor how many
/// lanes a worker, and would compare all with all.
const TURN: &str = "
    with ours as materialized (
        select said.lane, said.last, claim.ctid as place
        from unnest($2::bytea[], $3::bigint[], $4::bigint[]) as said (lane, token, last)
        cross join lateral (
            select ctid from {lanes} lanes
            where lanes.lane = said.lane and lanes.token = said.token and (lanes.worker = $1) is true
            for share
        ) as claim
    ), removed as (
        delete from {messages} messages
        where messages.sequence = any($5) and (messages.lane in (select lane from ours)) is true
    ), noted as (
        update {messages} messages set attempts = greatest(messages.attempts, tried.attempts)
        from unnest($6::bigint[], $7::integer[]) as tried (sequence, attempts)
        where messages.sequence = tried.sequence
          and (messages.lane in (select lane from ours)) is true
    ), unchanged as materialized (
        select ours.place as of_lane, key.ctid as of_key
        from ours cross join lateral (
            select ctid from {keys} keys
            where keys.lane = ours.lane and keys.last = ours.last
            for update skip locked
        ) as key
    ), drained as (
        delete from {lanes} lanes where lanes.ctid = any(array(select of_lane from unchanged))
        returning lanes.lane
    ), forgotten as (
        delete from {keys} keys where keys.ctid = any(array(select of_key from unchanged))
    ), free as materialized (
        select ctid from {lanes}
        where worker is null and ready_at <= clock_timestamp() and (
            select runs_out > clock_timestamp() from {workers} where id = $1
        )
        order by ready_at
        limit $8
        for update skip locked
    ), claimed as (
        update {lanes} lanes set worker = $1, token = nextval('{tokens}')
        where lanes.ctid = any(array(select ctid from free))
        returning lanes.lane, lanes.token, lanes.crashes
    ), wanted as materialized (
        select want.lane, claim.token, claim.crashes, want.after, want.count
        from unnest($9::bytea[], $10::bigint[], $11::bigint[], $12::integer[])
            as want (lane, token, after, count)
        cross join lateral (
            select token, crashes from {lanes} lanes
            where lanes.lane = want.lane and lanes.token = want.token and (lanes.worker = $1) is true
            offset 0
        ) as claim
        union all
        select lane, token, crashes, 0, $13 from claimed
    ), page as (
        select wanted.lane as of_lane, message.*
        from wanted cross join lateral (
            select * from {messages} messages
            where messages.lane = wanted.lane and messages.sequence > wanted.after
            order by messages.sequence limit wanted.count
        ) as message
    ), sized as (
        select *, sum(octet_length(payload)) over (rows unbounded preceding)
            - octet_length(payload) as before
        from page
    )
    select null::bigint as sequence, null::bytea as key, null::bytea as payload, null::bytea as id,
        null::text as version, null::bytea as headers, null::double precision as accepted_at,
        0 as what, lane as of_lane, null::integer as attempts, null::smallint as crashes,
        null::bigint as token, null::bigint as last, null::bigint as redriven
    from ours
    union all
    select null, null, null, null, null, null, null, 1, lane, null, null, null, null, null
    from drained
    union all
    select null, null, null, null, null, null, null,
        2, wanted.lane, null, wanted.crashes, wanted.token, key.last, key.redriven
    from wanted cross join lateral (
        select last, redriven from {keys} keys where keys.lane = wanted.lane offset 0
    ) as key
    union all
    select sequence, key, case when before < $14 or before = 0 then payload end, id, version::text,
        headers, date_part('epoch', accepted_at),
        3, of_lane, attempts, null, null, null, null
    from sized
";

impl Postgres {
    pub(super) async fn take_turn(&self, turn: &Turn) -> Result<Answer, SqlError> {
        let said = turn.said();
        let lanes: Vec<&[u8]> = said.keys().map(|claimed| claimed.lane.as_ref()).collect();
        let tokens: Vec<i64> = (said.keys())
            .map(|claimed| to_column(claimed.token))
            .collect();
        let lasts: Vec<Option<i64>> = said.values().map(|last| last.map(to_column)).collect();
        let done: Vec<i64> = turn.done.iter().map(|done| to_column(done.1)).collect();
        let tried = turn.attempts.iter();
        let (tried, attempts): (Vec<i64>, Vec<i32>) = tried
            .map(|(_, sequence, attempts)| (to_column(*sequence), count_column(*attempts)))
            .unzip();
        let want = turn.fetch.iter();
        let want_lanes: Vec<&[u8]> = want.map(|want| want.claimed.lane.as_ref()).collect();
        let want = turn.fetch.iter();
        let want_tokens: Vec<i64> = want.map(|want| to_column(want.claimed.token)).collect();
        let want = turn.fetch.iter();
        let (after, counts): (Vec<i64>, Vec<i32>) = want
            .map(|want| (to_column(want.after), count_column(want.count)))
            .unzip();
        let mut connection = Lent::from(&self.pool).await?;
        let rows = sqlx::query(self.text(TURN))
            .bind(to_column(turn.worker))
            .bind(lanes)
            .bind(tokens)
            .bind(lasts)
            .bind(done)
            .bind(tried)
            .bind(attempts)
            .bind(i64::from(turn.claim))
            .bind(want_lanes)
            .bind(want_tokens)
            .bind(after)
            .bind(counts)
            .bind(count_column(turn.window))
            .bind(to_column(turn.bytes))
            .fetch_all(connection.get())
            .await;
        answer_of(&connection.end(rows)?)
    }
}

/// Columns of the answer after those of a message.
const WHAT: usize = 7;
const OF_LANE: usize = 8;
const ATTEMPTS: usize = 9;
const CRASHES: usize = 10;
const TOKEN: usize = 11;
const LAST: usize = 12;
const REDRIVEN: usize = 13;

fn answer_of(rows: &[PgRow]) -> Result<Answer, SqlError> {
    let mut answer = Answer::default();
    // The first message of each lane that was too much.
    let mut cut: HashMap<LaneId, u64> = HashMap::new();
    for row in rows {
        let lane = LaneId::from_bytes(row.get(OF_LANE));
        match row.get::<i32, _>(WHAT) {
            0 => answer.ours.push(lane),
            1 => answer.drained.push(lane),
            2 => answer.lanes.push(Found {
                claimed: Claimed {
                    lane,
                    token: from_column(row, TOKEN),
                },
                last: from_column(row, LAST),
                redriven: from_column(row, REDRIVEN),
                crashes: row.get::<i16, _>(CRASHES).unsigned_abs(),
            }),
            _ if row.get::<Option<&[u8]>, _>(PAYLOAD).is_none() => {
                let sequence = from_column(row, SEQUENCE);
                let first = cut.entry(lane).or_insert(sequence);
                *first = sequence.min(*first);
                answer.left_out.push(lane);
            }
            _ => answer.messages.push(Brought {
                lane,
                attempts: row.get::<i32, _>(ATTEMPTS).unsigned_abs(),
                message: message_of(row)?,
            }),
        }
    }
    // The rows of a lane come in their order as it is; nothing in the statement says so.
    (answer.messages).sort_unstable_by_key(|brought| brought.message.sequence);
    if !cut.is_empty() {
        (answer.messages).retain(|brought| {
            let first = cut.get(&brought.lane);
            first.is_none_or(|first| brought.message.sequence < *first)
        });
    }
    Ok(answer)
}

pub(super) fn found_of(row: &PgRow) -> Found {
    Found {
        claimed: Claimed {
            lane: lane_of(row, "lane"),
            token: from_column(row, "token"),
        },
        last: from_column(row, "last"),
        redriven: from_column(row, "redriven"),
        crashes: row.get::<i16, _>("crashes").unsigned_abs(),
    }
}

fn lane_of(row: &PgRow, name: &str) -> LaneId {
    LaneId::from_bytes(row.get(name))
}
