//! One round trip of a source.
//!
//! One statement claims a lane and reads its messages, and so both see one snapshot. `free` has the
//! places of the rows at the time of their locks, and `claimed` looks there in the snapshot: it
//! does not see a row that changed in between. Another worker had that lane, and the messages that
//! it finished would look as if they waited.

use std::collections::{BTreeSet, HashMap, HashSet};

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::tid::Tid;
use super::{
    ACCEPTED_AT, ID, PAYLOAD, Postgres, SEQUENCE, VERSION, count_column, from_column, message_of,
    to_column,
};
use crate::error::SqlError;
use crate::inbox::lane::LaneId;
use crate::inbox::turn::{
    Answer, Brought, Claimed, Found, MessageRef, Place, RoundTrip, WorkerState,
};
use crate::link::Lent;

/// Joins with the parameters are lateral, and membership tests in them hashed (`is true` keeps the
/// planner from turning them into joins and from choosing an index): the planner knows neither how
/// many rows an array has nor how many lanes a worker has, and would compare all with all.
///
/// Leaving a lane needs no index lookup: its row and that of its key are where the worker saw them,
/// or the lane stays. A token belongs to one claim only.
///
/// Reading a key with one message needs no index lookup either: the lane knows where the message
/// was stored. The statement does not look there if the key had other messages, or a letter waits
/// again.
///
/// A row without `xmax` was neither changed nor locked. That test skips rows that other claims are
/// about to take, without an attempt to lock each; rows of an aborted claim wait for a claim that
/// looks at all free lanes. It is a `case` so that the planner assumes it true of half of the rows,
/// and uses the index.
const TURN: &str = include_str!("sql/turn.sql");

/// The bytes of the messages before one, in the order in which they are read.
const BYTES_BEFORE: &str =
    "sum(octet_length(payload)) over (rows unbounded preceding) - octet_length(payload)";

impl Postgres {
    pub(super) async fn take_turn(&self, turn: &RoundTrip) -> Result<Answer, SqlError> {
        let leave = &turn.leave;
        let (left, left_tokens) = claims(leave.iter().map(|leave| &leave.claimed));
        let lasts: Vec<i64> = leave.iter().map(|leave| to_column(leave.last)).collect();
        let of_lanes: Vec<Tid> = leave.iter().map(|leave| Tid(leave.place.of_lane)).collect();
        let of_keys: Vec<Tid> = leave.iter().map(|leave| Tid(leave.place.of_key)).collect();
        let leaving: HashSet<u64> = leave.iter().map(|leave| leave.claimed.token).collect();
        let told = turn.told().filter(|told| !leaving.contains(&told.token));
        // Each lane once, and locked in the order of the lanes.
        let told: BTreeSet<Claimed> = told.collect();
        let (told, told_tokens) = claims(told.iter());
        let (done, done_nonces) = names(turn.done.iter().map(|done| &done.1));
        let (_, tried_nonces) = names(turn.attempts.iter().map(|tried| &tried.1));
        let tried = turn.attempts.iter();
        let (tried, attempts): (Vec<i64>, Vec<i32>) = tried
            .map(|(_, name, attempts)| (to_column(name.sequence), count_column(*attempts)))
            .unzip();
        let want = turn.fetch.iter();
        let (wanted, wanted_tokens) = claims(want.clone().map(|want| &want.claimed));
        let (after, counts): (Vec<i64>, Vec<i32>) = want
            .map(|want| (to_column(want.after), count_column(want.count)))
            .unzip();
        let mut connection = Lent::from(&self.connections).await?;
        let (before, bytes) = match turn.sums {
            true => (BYTES_BEFORE, turn.bytes),
            // Of less than the share.
            false => (
                "octet_length(payload)",
                turn.bytes / (turn.asked().max(1) as u64) + 1,
            ),
        };
        let rows = sqlx::query(self.text(&TURN.replace("{before}", before)))
            .bind(to_column(turn.worker))
            .bind(left)
            .bind(left_tokens)
            .bind(lasts)
            .bind(of_lanes)
            .bind(of_keys)
            .bind(told)
            .bind(told_tokens)
            .bind(done)
            .bind(tried)
            .bind(attempts)
            .bind(i64::from(turn.claim))
            .bind(wanted)
            .bind(wanted_tokens)
            .bind(after)
            .bind(counts)
            .bind(count_column(turn.window))
            .bind(to_column(bytes))
            .bind(turn.since)
            .bind(done_nonces)
            .bind(tried_nonces)
            .fetch_all(connection.get())
            .await;
        answer_of(&connection.end(rows)?)
    }
}

/// Returns the lanes and the tokens of claims.
fn claims<'a>(claimed: impl Iterator<Item = &'a Claimed>) -> (Vec<&'a [u8]>, Vec<i64>) {
    claimed
        .map(|claimed| (claimed.lane.as_ref(), to_column(claimed.token)))
        .unzip()
}

/// Returns the sequences and the nonces of messages.
fn names<'a>(names: impl Iterator<Item = &'a MessageRef>) -> (Vec<i64>, Vec<i64>) {
    names
        .map(|name| (to_column(name.sequence), to_column(name.nonce)))
        .unzip()
}

/// Decodes a place as `tidsend` returns it. Bytes of another length are the place of no row.
fn place(bytes: &[u8]) -> u64 {
    let number = |byte: u64, next: &u8| byte << 8 | u64::from(*next);
    bytes.iter().fold(0, number)
}

/// Columns of the answer after those of a message.
const WHAT: usize = 7;
const OF_LANE: usize = 8;
const ATTEMPTS: usize = 9;
const CRASHES: usize = 10;
const TOKEN: usize = 11;
const LAST: usize = 12;
const REDRIVEN: usize = 13;
const PLACE: usize = 14;
const OF_KEY: usize = 15;
const NONCE: usize = 16;

/// The meaning of a row of the answer.
const LOST: i32 = 0;
const STAYED: i32 = 1;
const SINCE: i32 = 2;
const ELSEWHERE: i32 = 4;

fn answer_of(rows: &[PgRow]) -> Result<Answer, SqlError> {
    let mut answer = Answer::default();
    // The first message of each lane that exceeded the limit.
    let mut cut: HashMap<LaneId, u64> = HashMap::new();
    for row in rows {
        let lane = LaneId::from_bytes(row.get::<Option<_>, _>(OF_LANE).unwrap_or_default());
        match row.get::<i32, _>(WHAT) {
            LOST => {
                answer.lost.push(lane);
                continue;
            }
            STAYED => {
                answer.stayed.push(lane);
                continue;
            }
            SINCE => {
                answer.free_since = row.get(ACCEPTED_AT);
                continue;
            }
            ELSEWHERE => {
                let joined = row.get::<&[u8], _>(ID);
                answer.standing = WorkerState::Elsewhere {
                    joined: String::from_utf8_lossy(joined).into_owned(),
                    now: row.get(VERSION),
                };
                continue;
            }
            _ => {}
        }
        // Each row of a lane has the state of the lane; a lane without messages has one row.
        if answer
            .lanes
            .last()
            .is_none_or(|last| last.claimed.lane != lane)
        {
            answer.lanes.push(found(row, lane, CRASHES));
        }
        let Some(sequence) = row.get::<Option<i64>, _>(SEQUENCE).map(i64::unsigned_abs) else {
            continue;
        };
        if let Some(found) = answer.lanes.last_mut() {
            found.messages += 1;
        }
        if row.get::<Option<&[u8]>, _>(PAYLOAD).is_none() {
            let first = cut.entry(lane).or_insert(sequence);
            *first = sequence.min(*first);
            answer.left_out.push(lane);
            continue;
        }
        answer.messages.push(Brought {
            lane,
            nonce: from_column(row, NONCE),
            attempts: row.get::<i32, _>(ATTEMPTS).unsigned_abs(),
            message: message_of(row)?,
        });
    }
    // The rows of a lane arrive together, and in their order; but the statement does not guarantee
    // it.
    (answer.lanes).sort_unstable_by_key(|found| found.claimed.token);
    (answer.lanes).dedup_by(|found, first| {
        let is_one = found.claimed.token == first.claimed.token;
        first.messages += if is_one { found.messages } else { 0 };
        is_one
    });
    (answer.messages).sort_unstable_by_key(|brought| brought.message.sequence);
    if !cut.is_empty() {
        (answer.messages).retain(|brought| {
            let first = cut.get(&brought.lane);
            first.is_none_or(|first| brought.message.sequence < *first)
        });
    }
    Ok(answer)
}

/// Reads the state of a lane. Its columns are in the order of those of the answer, from that of the
/// crashes on, which is at `crashes`.
pub(super) fn found(row: &PgRow, lane: LaneId, crashes: usize) -> Found {
    let column = |column: usize| crashes + column - CRASHES;
    Found {
        claimed: Claimed {
            lane,
            token: from_column(row, column(TOKEN)),
        },
        last: from_column(row, column(LAST)),
        redriven: from_column(row, column(REDRIVEN)),
        crashes: row.get::<i16, _>(crashes).unsigned_abs(),
        place: Place {
            of_lane: place(row.get(column(PLACE))),
            of_key: place(row.get(column(OF_KEY))),
        },
        messages: 0,
    }
}
