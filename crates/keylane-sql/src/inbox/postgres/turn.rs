//! One round trip of a source.
//!
//! Its claims read the messages of a lane in the same statement that claims it, and so by one
//! snapshot. `free` has the tokens as they are when the rows are locked, `claimed` looks for them in
//! the snapshot: where they differ, another worker had the lane in between, and what that one has done
//! would be seen as waiting.

use keylane_inbox::StoredMessage;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{Postgres, count_column, from_column, message_of, to_column};
use crate::error::SqlError;
use crate::inbox::lane::LaneId;
use crate::inbox::turn::{Answer, Brought, Claimed, Found, Turn};
use crate::lent::Lent;

/// Joins of what was sent are lateral, and its memberships hashed (`is true` keeps them from becoming
/// joins, and from choosing an index): the planner knows neither how many rows an array has nor how many
/// lanes a worker, and would compare all with all.
const TURN: &str = "
    with ours as materialized (
        select said.lane, said.last
        from unnest($2::bytea[], $3::bigint[], $4::bigint[]) as said (lane, token, last)
        cross join lateral (
            select from {lanes} lanes
            where lanes.lane = said.lane and lanes.token = said.token and (lanes.worker = $1) is true
            for share
        ) as claim
    ), removed as (
        delete from {messages} messages
        using unnest($5::bytea[], $6::bigint[]) as done (lane, sequence)
        where messages.lane = done.lane and messages.sequence = done.sequence
          and (done.lane in (select lane from ours)) is true
    ), noted as (
        update {messages} messages set attempts = tried.attempts
        from unnest($7::bytea[], $8::bigint[], $9::integer[]) as tried (lane, sequence, attempts)
        where messages.lane = tried.lane and messages.sequence = tried.sequence
          and (tried.lane in (select lane from ours)) is true
    ), unchanged as materialized (
        select ours.lane
        from ours cross join lateral (
            select from {keys} keys
            where keys.lane = ours.lane and keys.last = ours.last
            for update skip locked
        ) as key
    ), drained as (
        delete from {lanes} lanes using unchanged where lanes.lane = unchanged.lane
        returning lanes.lane
    ), forgotten as (
        delete from {keys} keys using unchanged where keys.lane = unchanged.lane
    ), free as materialized (
        select lane, token from {lanes}
        where worker is null and ready_at <= clock_timestamp() and (
            select runs_out > clock_timestamp() from {workers} where id = $1
        )
        order by ready_at
        limit $10
        for update skip locked
    ), claimed as (
        update {lanes} lanes set worker = $1, token = nextval('{tokens}')
        from free where lanes.lane = free.lane and lanes.token = free.token
        returning lanes.lane, lanes.token, lanes.crashes
    ), wanted as materialized (
        select want.lane, claim.token, claim.crashes, want.after, want.count
        from unnest($11::bytea[], $12::bigint[], $13::bigint[], $14::integer[])
            as want (lane, token, after, count)
        cross join lateral (
            select token, crashes from {lanes} lanes
            where lanes.lane = want.lane and lanes.token = want.token and (lanes.worker = $1) is true
            offset 0
        ) as claim
        union all
        select lane, token, crashes, 0, $15 from claimed
    ), page as materialized (
        select wanted.lane as of_lane, message.*
        from wanted cross join lateral (
            select * from {messages} messages
            where messages.lane = wanted.lane and messages.sequence > wanted.after
            order by messages.sequence limit wanted.count
        ) as message
    ), sized as (
        select *, sum(octet_length(payload)) over (order by of_lane, sequence)
            - octet_length(payload) as before
        from page
    )
    select 0 as what, lane as of_lane, null::bigint as token, null::bigint as last,
        null::bigint as redriven, null::smallint as crashes,
        null::bigint as sequence, null::bytea as key, null::bytea as payload, null::bytea as id,
        null::text as version, null::bytea as headers, null::bigint as accepted_at_ms,
        null::integer as attempts
    from ours
    union all
    select 1, lane, null, null, null, null, null, null, null, null, null, null, null, null
    from drained
    union all
    select 2, wanted.lane, wanted.token, key.last, key.redriven, wanted.crashes,
        null, null, null, null, null, null, null, null
    from wanted cross join lateral (
        select last, redriven from {keys} keys where keys.lane = wanted.lane offset 0
    ) as key
    union all
    select 3, of_lane, null, null, null, null, sequence, key,
        case when before < $16 or before = 0 then payload end, id, version::text,
        headers, (extract(epoch from accepted_at) * 1000)::bigint, attempts
    from sized
    order by what, of_lane, sequence
";

impl Postgres {
    pub(super) async fn take_turn(&self, turn: &Turn) -> Result<Answer, SqlError> {
        let (mut lanes, mut tokens, mut lasts) = (Vec::new(), Vec::new(), Vec::new());
        for (claimed, last) in turn.said() {
            lanes.push(claimed.lane.0.to_vec());
            tokens.push(to_column(claimed.token));
            lasts.push(last.map(to_column));
        }
        let lane = |claimed: &Claimed| claimed.lane.0.to_vec();
        let done_lanes: Vec<Vec<u8>> = turn.done.iter().map(|done| lane(&done.0)).collect();
        let done: Vec<i64> = turn.done.iter().map(|done| to_column(done.1)).collect();
        let tried_lanes: Vec<Vec<u8>> = turn.attempts.iter().map(|tried| lane(&tried.0)).collect();
        let tried: Vec<i64> = turn
            .attempts
            .iter()
            .map(|tried| to_column(tried.1))
            .collect();
        let attempts: Vec<i32> = (turn.attempts.iter())
            .map(|tried| count_column(tried.2))
            .collect();
        let want_lanes: Vec<Vec<u8>> = turn.fetch.iter().map(|want| lane(&want.claimed)).collect();
        let want_tokens: Vec<i64> = (turn.fetch.iter())
            .map(|want| to_column(want.claimed.token))
            .collect();
        let after: Vec<i64> = turn
            .fetch
            .iter()
            .map(|want| to_column(want.after))
            .collect();
        let counts: Vec<i32> = turn
            .fetch
            .iter()
            .map(|want| count_column(want.count))
            .collect();
        let mut connection = Lent::from(&self.pool).await?;
        let rows = sqlx::query(self.text(TURN))
            .bind(to_column(turn.worker))
            .bind(lanes)
            .bind(tokens)
            .bind(lasts)
            .bind(done_lanes)
            .bind(done)
            .bind(tried_lanes)
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
        let mut answer = Answer::default();
        for row in connection.end(rows)? {
            let lane = lane_of(&row, "of_lane");
            match row.get::<i32, _>("what") {
                0 => answer.ours.push(lane),
                1 => answer.drained.push(lane),
                2 => answer.lanes.push(Found {
                    claimed: Claimed {
                        lane,
                        token: from_column(&row, "token"),
                    },
                    last: from_column(&row, "last"),
                    redriven: from_column(&row, "redriven"),
                    crashes: row.get::<i16, _>("crashes").unsigned_abs(),
                }),
                _ if row.get::<Option<&[u8]>, _>("payload").is_none() => answer.left_out.push(lane),
                _ => answer.messages.push(brought(lane, &row)?),
            }
        }
        Ok(answer)
    }
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

fn brought(lane: LaneId, row: &PgRow) -> Result<Brought, SqlError> {
    let message: StoredMessage = message_of(row)?;
    let attempts = row.get::<i32, _>("attempts").unsigned_abs();
    Ok(Brought {
        lane,
        attempts,
        message,
    })
}

fn lane_of(row: &PgRow, name: &str) -> LaneId {
    LaneId::from_bytes(row.get(name))
}
