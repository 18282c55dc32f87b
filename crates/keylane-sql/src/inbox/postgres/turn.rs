//! One round trip of a source.
//!
//! Its claims read the messages of a lane in the same statement that claims it, and so by one
//! snapshot. The lane is claimed only if its token in that snapshot is the one that is there when
//! its row is locked: otherwise another worker had it in between, and what that one has done would
//! be seen as waiting.

use keylane_inbox::StoredMessage;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{Postgres, from_column, message_of, to_column};
use crate::error::SqlError;
use crate::inbox::lane::LaneId;
use crate::inbox::turn::{Answer, Brought, Claimed, Found, Leave, Turn};
use crate::lent::Lent;

const TURN: &str = "
    with done as (
        select * from unnest($2::bytea[], $3::bigint[], $4::bigint[]) as d (lane, token, sequence)
    ), tried as (
        select * from unnest($5::bytea[], $6::bigint[], $7::bigint[], $8::integer[])
            as t (lane, token, sequence, attempts)
    ), leaving as (
        select * from unnest($9::bytea[], $10::bigint[], $11::bigint[], $12::smallint[])
            as l (lane, token, last, crashes)
    ), ours as (
        select lanes.lane from {lanes} lanes
        join (
            select lane, token from done union select lane, token from tried
            union select lane, token from leaving
        ) as said on said.lane = lanes.lane and said.token = lanes.token
        where lanes.worker = $1
        order by lanes.lane
        for share of lanes
    ), removed as (
        delete from {messages} messages using done, ours
        where messages.sequence = done.sequence and messages.lane = done.lane
          and ours.lane = done.lane
    ), noted as (
        update {messages} messages set attempts = tried.attempts
        from tried, ours
        where messages.sequence = tried.sequence and messages.lane = tried.lane
          and ours.lane = tried.lane
    ), unchanged as (
        select keys.lane from {keys} keys join leaving using (lane) join ours using (lane)
        where keys.last = leaving.last
        order by keys.lane
        for update of keys skip locked
    ), drained as (
        delete from {lanes} lanes using unchanged where lanes.lane = unchanged.lane
        returning lanes.lane
    ), forgotten as (
        delete from {keys} keys using unchanged where keys.lane = unchanged.lane
    ), released as (
        update {lanes} lanes
        set worker = null, ready_at = clock_timestamp(), crashes = leaving.crashes
        from leaving, ours
        where lanes.lane = leaving.lane and ours.lane = leaving.lane and leaving.last is null
    ), free as (
        select lanes.lane from {lanes} lanes
        where lanes.worker is null and lanes.ready_at <= clock_timestamp()
          and lanes.token = (select seen.token from {lanes} seen where seen.lane = lanes.lane)
        order by lanes.ready_at
        limit $17
        for update of lanes skip locked
    ), claimed as (
        update {lanes} lanes set worker = $1, token = nextval('{tokens}')
        from free where lanes.lane = free.lane
        returning lanes.lane, lanes.token, lanes.crashes
    ), wanted as (
        select lanes.lane, lanes.token, lanes.crashes, want.after, want.count
        from unnest($13::bytea[], $14::bigint[], $15::bigint[], $16::integer[])
            as want (lane, token, after, count)
        join {lanes} lanes on lanes.lane = want.lane and lanes.token = want.token
        where lanes.worker = $1
        union all
        select lane, token, crashes, 0, $18 from claimed
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
        null::bigint as redriven, null::smallint as crashes, null::bigint as available,
        null::bigint as sequence, null::bytea as key, null::bytea as payload, null::bytea as id,
        null::text as version, null::bytea as headers, null::bigint as accepted_at_ms,
        null::integer as attempts
    from ours
    union all
    select 1, lane, null, null, null, null, null, null, null, null, null, null, null, null, null
    from drained
    union all
    select 2, wanted.lane, wanted.token, keys.last, keys.redriven, wanted.crashes,
        (select count(*) from page where page.of_lane = wanted.lane),
        null, null, null, null, null, null, null, null
    from wanted join {keys} keys on keys.lane = wanted.lane
    union all
    select 3, of_lane, null, null, null, null, null, sequence, key, payload, id, version::text,
        headers, (extract(epoch from accepted_at) * 1000)::bigint, attempts
    from sized where before < $19 or before = 0
    order by what, of_lane, sequence
";

impl Postgres {
    pub(super) async fn take_turn(&self, turn: &Turn) -> Result<Answer, SqlError> {
        let lanes = |claimed: &mut dyn Iterator<Item = Claimed>| -> (Vec<Vec<u8>>, Vec<i64>) {
            claimed
                .map(|claimed| (claimed.lane.0.to_vec(), to_column(claimed.token)))
                .unzip()
        };
        let (done_lanes, done_tokens) = lanes(&mut turn.done.iter().map(|done| done.0));
        let (tried_lanes, tried_tokens) = lanes(&mut turn.attempts.iter().map(|tried| tried.0));
        let (left_lanes, left_tokens) = lanes(&mut turn.leave.iter().map(|leave| leave.0));
        let (want_lanes, want_tokens) = lanes(&mut turn.fetch.iter().map(|want| want.claimed));
        let done: Vec<i64> = turn.done.iter().map(|done| to_column(done.1)).collect();
        let tried: Vec<i64> = turn
            .attempts
            .iter()
            .map(|tried| to_column(tried.1))
            .collect();
        let attempts: Vec<i32> = (turn.attempts.iter())
            .map(|tried| i32::try_from(tried.2).unwrap_or(i32::MAX))
            .collect();
        let (mut lasts, mut crashes) = (Vec::new(), Vec::new());
        for (_, leave) in &turn.leave {
            lasts.push(match leave {
                Leave::Drained { last } => Some(to_column(*last)),
                Leave::Released { .. } => None,
            });
            crashes.push(match leave {
                Leave::Drained { .. } => 0,
                Leave::Released { crashes } => i16::try_from(*crashes).unwrap_or(i16::MAX),
            });
        }
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
            .bind(done_lanes)
            .bind(done_tokens)
            .bind(done)
            .bind(tried_lanes)
            .bind(tried_tokens)
            .bind(tried)
            .bind(attempts)
            .bind(left_lanes)
            .bind(left_tokens)
            .bind(lasts)
            .bind(crashes)
            .bind(want_lanes)
            .bind(want_tokens)
            .bind(after)
            .bind(counts)
            .bind(i64::from(turn.claim))
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
                    available: u32::try_from(from_column(&row, "available")).unwrap_or(u32::MAX),
                }),
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
        available: 0,
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

fn count_column(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
