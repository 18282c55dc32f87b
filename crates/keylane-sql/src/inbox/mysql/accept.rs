//! Accepts messages.
//!
//! As in PostgreSQL, producers of messages of one key go one after the other: each locks the row of
//! the key in `keys`, then draws its sequences, and holds the lock until it commits. Rows are
//! locked in the order of their lanes.
//!
//! A row of `lanes` exists exactly if the row of `keys` does: both are inserted in one transaction,
//! and removed in one that holds the lock of the key. So a transaction that holds that lock knows
//! whether the lane exists, and does not touch an existing row of `lanes`: an insert that finds its
//! row would lock it until the commit, and a consumer would wait for a transaction of the user's.

use std::collections::{BTreeSet, HashMap};

use keylane_inbox::Accepted;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::script::Script;
use super::{BEGIN, MOST, MySql};
use crate::error::SqlError;
use crate::inbox::lane::LaneId;
use crate::inbox::nonce;
use crate::inbox::record::{Item, Items};
use crate::link::Lent;
use crate::literals::{hex, joined, table};
use crate::tables::{Quote, Tables};

/// How many bytes of messages one insert contains.
const TOGETHER: usize = 128 << 10;

const COLUMNS: &str =
    "(lane, `key`, payload, payload_bytes, id, version, headers, nonce, accepted_at)";

/// Which side owns the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Bounds {
    Own,
    Callers,
}

impl Bounds {
    fn begin(self) -> &'static str {
        match self {
            Self::Own => BEGIN,
            Self::Callers => "",
        }
    }

    fn commit(self) -> &'static str {
        match self {
            Self::Own => "commit",
            Self::Callers => "",
        }
    }
}

impl MySql {
    pub(super) async fn accept_all(&self, items: &Items<'_>) -> Result<Vec<Accepted>, SqlError> {
        let mut connection = Lent::from(&self.connections).await?;
        let accepted = accept_on(connection.get(), &self.tables, items, Bounds::Own).await;
        connection.end_or_close(accepted)
    }
}

/// Accepts on a connection.
pub(in super::super) async fn accept_on(
    connection: &mut MySqlConnection,
    tables: &Tables,
    items: &Items<'_>,
    bounds: Bounds,
) -> Result<Vec<Accepted>, sqlx::Error> {
    let mut script = Script::new(connection, tables);
    script.add(bounds.begin()).await?;
    let known = known(&mut script, items).await?;
    let repeats = |item: &Item<'_>| {
        let mut marks = item.marks.iter();
        marks.find_map(|mark| known.get(mark).copied())
    };
    let new: Vec<&Item<'_>> = (items.items.iter())
        .filter(|item| repeats(item).is_none())
        .collect();
    let has_marks = items.items.iter().any(|item| !item.marks.is_empty());
    let mut stored = store(&mut script, tables, &new, !has_marks, bounds)
        .await?
        .into_iter();
    let (mut accepted, mut named) = (Vec::with_capacity(items.items.len()), Vec::new());
    for item in &items.items {
        let one = match repeats(item) {
            Some(sequence) => Accepted::Duplicate(sequence),
            None => Accepted::Stored(stored.next().ok_or(sqlx::Error::RowNotFound)?),
        };
        let fresh = item.marks.iter().filter(|mark| !known.contains_key(*mark));
        named.extend(fresh.map(|mark| (mark, one.sequence())));
        accepted.push(one);
    }
    if has_marks {
        for named in named.chunks(MOST) {
            let named = named.iter().map(|(mark, sequence)| {
                format!("select {} as mark, {sequence} as sequence", hex(mark))
            });
            let statement = format!(
                "update ({}) named straight_join {{known}} known force index (primary)
                    on known.mark = named.mark
                 set known.sequence = named.sequence",
                table(named),
            );
            script.add(&statement).await?;
        }
        script.add(bounds.commit()).await?;
        script.run().await?;
    }
    Ok(accepted)
}

/// Inserts the marks of messages. Returns the existing ones with their sequences. Waits while
/// another transaction inserts the same mark.
async fn known(
    script: &mut Script<'_>,
    items: &Items<'_>,
) -> Result<HashMap<[u8; 32], u64>, sqlx::Error> {
    // All transactions use this order.
    let marks: BTreeSet<[u8; 32]> = (items.items.iter())
        .flat_map(|item| item.marks.iter().copied())
        .collect();
    let mut known = HashMap::new();
    if marks.is_empty() {
        return Ok(known);
    }
    for marks in Vec::from_iter(marks).chunks(MOST) {
        // Existing marks that are not forgotten meanwhile are locked in shared mode. A write lock
        // would make calls that repeat a message wait for each other. The read sees committed rows,
        // and not the snapshot of a transaction of the user's.
        let statements = format!(
            "insert ignore into {{known}} (mark, sequence, seen_at) values {};
             select mark, sequence from {{known}} force index (primary)
             where mark in ({}) lock in share mode",
            joined(
                marks
                    .iter()
                    .map(|mark| format!("({}, 0, utc_timestamp(6))", hex(mark)))
            ),
            joined(marks.iter().map(hex)),
        );
        script.add(&statements).await?;
    }
    for row in script.run().await? {
        // No other transaction shows a mark before it has a sequence.
        let sequence = row.get::<u64, _>("sequence");
        if let (Ok(mark), 1..) = (row.get::<&[u8], _>("mark").try_into(), sequence) {
            known.insert(mark, sequence);
        }
    }
    Ok(known)
}

/// Stores new messages. Returns their sequences, in their order.
async fn store(
    script: &mut Script<'_>,
    tables: &Tables,
    items: &[&Item<'_>],
    is_all: bool,
    bounds: Bounds,
) -> Result<Vec<u64>, sqlx::Error> {
    let lanes: BTreeSet<LaneId> = items.iter().map(|item| item.lane).collect();
    for lanes in Vec::from_iter(lanes).chunks(MOST) {
        script.add(&lock(lanes)).await?;
    }
    // The first sequence of each part, and the distance to the next one.
    let (mut firsts, mut parts) = (Vec::new(), parts(items));
    for part in &mut parts {
        match part {
            [item] if size(item) > TOGETHER => {
                firsts.extend(script.run().await?.iter().map(first_of));
                let text = format!(
                    "insert into {{messages}} {COLUMNS}
                     values (?, ?, ?, ?, ?, ?, ?, ?, utc_timestamp(6))"
                );
                let inserted = sqlx::query(AssertSqlSafe(tables.statement(&text, Quote::MySql)))
                    .bind(item.lane.as_ref())
                    .bind(&item.message.key[..])
                    .bind(&item.message.payload[..])
                    .bind(item.message.payload.len() as u64)
                    .bind(item.message.id.as_ref().map(|id| id.as_bytes()))
                    .bind(item.message.version)
                    .bind(item.headers.as_deref())
                    .bind(nonce::draw())
                    .execute(&mut *script.connection)
                    .await?;
                firsts.push((inserted.last_insert_id(), 1));
            }
            part => {
                // The numbers of one insert follow each other, in the distance that a cluster sets.
                let statements = format!(
                    "insert into {{messages}} {COLUMNS} values {};
                     select cast(last_insert_id() as unsigned) as first_sequence,
                        cast(@@auto_increment_increment as unsigned) as distance",
                    joined(part.iter().map(|item| row(item))),
                );
                script.add(&statements).await?;
            }
        }
    }
    if is_all {
        script.add(bounds.commit()).await?;
    }
    firsts.extend(script.run().await?.iter().map(first_of));
    let numbered = firsts.into_iter().zip(parts);
    let sequences = numbered.flat_map(|((first, distance), part)| {
        (0..part.len() as u64).map(move |place| first + place * distance)
    });
    Ok(sequences.collect())
}

/// Locks keys, and inserts the missing ones with their lanes.
fn lock(lanes: &[LaneId]) -> String {
    format!(
        "insert into {{keys}} (lane, last, redriven) values {}
         on duplicate key update last = last + 1;
         insert into {{lanes}} (lane, ready_at)
         select lane, utc_timestamp(6) from {{keys}} force index (primary)
         where last = 1 and lane in ({}) order by lane",
        joined(lanes.iter().map(|lane| format!("({}, 1, 0)", hex(lane)))),
        joined(lanes.iter().map(hex)),
    )
}

fn first_of(row: &sqlx::mysql::MySqlRow) -> (u64, u64) {
    (row.get("first_sequence"), row.get("distance"))
}

/// Groups messages that are inserted together; a large one is alone.
fn parts<'a, 'b>(items: &'a [&'b Item<'b>]) -> Vec<&'a [&'b Item<'b>]> {
    let (mut parts, mut rest, mut bytes) = (Vec::new(), items, 0);
    let mut end = 0;
    while let Some(item) = rest.get(end) {
        bytes += size(item);
        if end > 0 && (bytes > TOGETHER || end == MOST) {
            let (part, others) = rest.split_at(end);
            parts.push(part);
            (rest, end, bytes) = (others, 0, 0);
            continue;
        }
        end += 1;
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

fn size(item: &Item<'_>) -> usize {
    let headers = item.headers.as_ref().map_or(0, Vec::len);
    item.message.key.len() + item.message.payload.len() + headers + 100
}

fn row(item: &Item<'_>) -> String {
    let message = item.message;
    let or_null = |value: Option<String>| value.unwrap_or_else(|| "null".to_owned());
    format!(
        "({}, {}, {}, {}, {}, {}, {}, {}, utc_timestamp(6))",
        hex(item.lane),
        hex(&message.key),
        hex(&message.payload),
        message.payload.len(),
        or_null(message.id.as_ref().map(|id| hex(id.as_bytes()))),
        or_null(message.version.map(|version| version.to_string())),
        or_null(item.headers.as_ref().map(hex)),
        nonce::draw(),
    )
}
