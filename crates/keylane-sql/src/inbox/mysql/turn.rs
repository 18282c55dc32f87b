//! One round trip of a source, in two transactions of one text.
//!
//! The first transaction makes all changes, and takes all locks. It locks the lanes that the turn
//! mentions, in their order, and keeps the locks on our lanes until it commits; a report about
//! another lane does nothing. It never waits for a lock of a producer: it skips keys that are
//! locked.
//!
//! The second transaction reads from one snapshot, which is taken after that commit. So it sees
//! nothing that an earlier owner of a lane has removed: that owner committed before the lane was
//! free. And no lock is held while messages travel. If a lane is lost in between, its messages may
//! be missing, or may be those of its next owner; the database then ignores all reports about it.
//!
//! Only the server knows which lanes are read, so it writes that statement itself: one limited
//! select for each lane, because neither database could limit the rows of each lane otherwise
//! without reading all of them.

use std::collections::{HashMap, HashSet};

use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::history::{ELSEWHERE, standing_of};
use super::script::Script;
use super::{BEGIN, MESSAGE, MySql, message_of};
use crate::error::SqlError;
use crate::inbox::lane::LaneId;
use crate::inbox::turn::{
    Answer, Brought, Claimed, Fetch, Found, Leave, MessageRef, Place, RoundTrip,
};
use crate::link::Lent;
use crate::literals::{hex, table};

/// The meaning of the results, in their column `what`.
const OURS: i64 = 0;
const GONE: i64 = 1;
const FOUND: i64 = 2;
const WAITS: i64 = 3;

/// Whether the worker has joined in the history of this server. It is read once, before anything
/// else.
const IS_HERE: &str = "@keylane_here";

/// The time at which this round trip began.
const NOW: &str = "cast(@keylane_now as datetime(6))";

impl MySql {
    pub(super) async fn take_turn(&self, turn: &RoundTrip) -> Result<Answer, SqlError> {
        let mut connection = Lent::from(&self.connections).await?;
        let rows = async {
            let mut script = Script::new(connection.get(), &self.tables);
            script.add("set @keylane_now = utc_timestamp(6)").await?;
            script.add(BEGIN).await?;
            let elsewhere = self.elsewhere(turn.worker);
            script.add(&elsewhere).await?;
            script.add("set @keylane_here = (found_rows() = 0)").await?;
            for statement in changes(turn) {
                script.add(&statement).await?;
            }
            script.add("commit").await?;
            for statement in reads(turn) {
                script.add(&statement).await?;
            }
            script.run().await
        };
        let rows = rows.await;
        let rows = connection.end_or_close(rows)?;
        let mut answer = Answer::default();
        let (mut ours, mut gone) = (HashSet::new(), HashSet::new());
        for row in rows {
            let lane = lane_of(&row);
            match row.get::<i64, _>("what") {
                OURS => drop(ours.insert(lane)),
                GONE => drop(gone.insert(lane)),
                FOUND => answer.lanes.push(found_of(&row)),
                ELSEWHERE => answer.standing = standing_of(&row),
                _ => match row.get::<Option<u64>, _>("sequence") {
                    Some(_) => answer.messages.push(brought(lane, &row)?),
                    None => answer.left_out.push(lane),
                },
            }
        }
        let mut messages: HashMap<LaneId, u32> = HashMap::new();
        let brought = answer.messages.iter().map(|brought| &brought.lane);
        for lane in brought.chain(&answer.left_out) {
            *messages.entry(*lane).or_default() += 1;
        }
        for found in &mut answer.lanes {
            found.messages = messages.get(&found.claimed.lane).copied().unwrap_or(0);
        }
        let said = turn.said().into_iter().map(|claimed| claimed.lane);
        answer.lost = said.filter(|lane| !ours.contains(lane)).collect();
        let leave = turn.leave.iter().map(|leave| leave.claimed.lane);
        // A missing lane was ours when the transaction began, so no other worker has removed it.
        let is_left = |lane: &LaneId| gone.contains(lane) && ours.contains(lane);
        answer.stayed = leave.filter(|lane| !is_left(lane)).collect();
        Ok(answer)
    }
}

/// Returns the statements of the first transaction.
fn changes(turn: &RoundTrip) -> Vec<String> {
    let worker = turn.worker;
    let mut statements = Vec::new();
    let done = turn
        .done
        .iter()
        .map(|(claimed, name)| (claimed, name_of(name)));
    let tried = turn.attempts.iter().map(|(claimed, name, attempts)| {
        let name = name_of(name);
        (claimed, format!("{name}, {attempts} as attempts"))
    });
    let drained =
        (turn.leave.iter()).map(|Leave { claimed, last, .. }| (claimed, format!("{last} as last")));
    let said = turn.said();
    // The reports about each lane, joined with the lane if it is ours.
    let ours = |said: &str| {
        format!(
            "({said}) said straight_join {{lanes}} lanes force index (primary)
                on lanes.lane = said.lane and lanes.token = said.token and lanes.worker = {worker}
                and {IS_HERE}"
        )
    };
    let said = said
        .iter()
        .map(|claimed| (claimed, "0 as nothing".to_owned()));
    if let Some(said) = constants(said) {
        let ours = ours(&said);
        statements.push(format!(
            "select {OURS} as what, lanes.lane from {ours} for update"
        ));
    }
    if let Some(done) = constants(done) {
        statements.push(format!(
            "delete messages from {} straight_join {{messages}} messages force index (primary)
                on messages.sequence = said.sequence and messages.lane = said.lane
                and messages.nonce = said.nonce",
            ours(&done),
        ));
    }
    if let Some(tried) = constants(tried) {
        statements.push(format!(
            "update {} straight_join {{messages}} messages force index (primary)
                on messages.sequence = said.sequence and messages.lane = said.lane
                and messages.nonce = said.nonce
             set messages.attempts = greatest(messages.attempts, said.attempts)",
            ours(&tried),
        ));
    }
    if let Some(drained) = constants(drained) {
        // A locked key is about to have another message.
        statements.push(format!(
            "delete lanes, `keys` from (
                select said.lane from {} straight_join {{keys}} `keys` force index (primary)
                    on `keys`.lane = said.lane and `keys`.last = said.last
                for update skip locked
             ) drained
             straight_join {{lanes}} lanes force index (primary) on lanes.lane = drained.lane
             straight_join {{keys}} `keys` force index (primary) on `keys`.lane = drained.lane",
            ours(&drained),
        ));
        statements.push(format!(
            "select {GONE} as what, said.lane from ({drained}) said
             left join {{lanes}} lanes force index (primary)
                on lanes.lane = said.lane and lanes.token = said.token
             where lanes.lane is null"
        ));
    }
    if turn.claim > 0 {
        statements.extend(claim(worker, turn.claim));
    }
    statements
}

/// Claims free lanes, all under one token. It is higher than every earlier token of these lanes,
/// because the row of the counter is locked from here to the commit.
///
/// The worker is locked, so that no call removes it meanwhile and leaves its lanes without an
/// owner.
fn claim(worker: u64, most: u32) -> [String; 5] {
    let free = |condition: &str| {
        format!(
            "select lane from {{lanes}} force index (of_worker)
             where worker = 0 and {condition}
             order by ready_at limit {most} for update skip locked"
        )
    };
    [
        format!(
            "select count(*) into @keylane_alive from {{workers}}
             where id = {worker} and runs_out > utc_timestamp(6) and {IS_HERE} lock in share mode"
        ),
        format!(
            "select count(*) into @keylane_free from ({}) free",
            free("@keylane_alive > 0")
        ),
        "update {counters} set value = last_insert_id(value + 1)
         where name = 'tokens' and @keylane_free > 0"
            .to_owned(),
        "set @keylane_token = if(@keylane_free > 0, last_insert_id(), 0)".to_owned(),
        format!(
            "update ({}) free straight_join {{lanes}} lanes force index (primary) on lanes.lane = free.lane
             set lanes.worker = {worker}, lanes.token = @keylane_token, lanes.ready_at = {NOW}",
            free("@keylane_token > 0")
        ),
    ]
}

/// Returns the statements of the second transaction.
fn reads(turn: &RoundTrip) -> Vec<String> {
    let worker = turn.worker;
    let mut lanes = Vec::new();
    if let Some(fetch) = constants(turn.fetch.iter().map(|fetch| {
        let Fetch { after, count, .. } = fetch;
        (&fetch.claimed, format!("{after} as after, {count} as most"))
    })) {
        lanes.push(format!(
            "select lanes.lane, lanes.token, lanes.crashes, said.after, said.most
             from ({fetch}) said straight_join {{lanes}} lanes force index (primary)
                on lanes.lane = said.lane and lanes.token = said.token and lanes.worker = {worker}
                and {IS_HERE}"
        ));
    }
    if turn.claim > 0 {
        lanes.push(format!(
            "select lane, token, crashes, 0 as after, {} as most
             from {{lanes}} force index (of_worker)
             where worker = {worker} and ready_at = {NOW} and token = @keylane_token",
            turn.window
        ));
    }
    if lanes.is_empty() {
        return Vec::new();
    }
    let lanes = table(lanes);
    let page = "select concat(
            '(select lane, sequence, payload_bytes from {messages} force index (of_lane)
              where lane = x''', hex(lane), ''' and sequence > ', after,
            ' order by sequence limit ', most, ')')";
    let head = format!(
        "select {WAITS} as what, page.lane, page.sequence as place, messages.attempts,
            messages.nonce, {MESSAGE}
         from (
            select *, sum(payload_bytes) over (order by lane, sequence) - payload_bytes as so_far
            from ("
    );
    let tail = format!(
        ") pages
         ) page left join {{messages}} messages force index (primary)
            on messages.sequence = page.sequence and (so_far < {} or so_far = 0)
         order by page.lane, page.sequence",
        turn.bytes
    );
    let quoted = |text: String| format!("'{}'", text.replace('\'', "''"));
    vec![
        "set transaction isolation level repeatable read".to_owned(),
        "start transaction read only".to_owned(),
        format!(
            "select {FOUND} as what, wanted.lane, wanted.token, wanted.crashes,
                `keys`.last, `keys`.redriven
             from ({lanes}) wanted straight_join {{keys}} `keys` force index (primary)
                on `keys`.lane = wanted.lane"
        ),
        "set @keylane_most = @@group_concat_max_len, session group_concat_max_len = 16777216"
            .to_owned(),
        format!(
            "select group_concat(one separator ' union all ') into @keylane_pages
             from ({page} as one from ({lanes}) wanted where most > 0) pages"
        ),
        format!(
            "set @keylane_read = if(@keylane_pages is null, 'do 0', concat({}, @keylane_pages, {}))",
            quoted(head),
            quoted(tail),
        ),
        "prepare keylane_read from @keylane_read".to_owned(),
        "execute keylane_read".to_owned(),
        "deallocate prepare keylane_read".to_owned(),
        "set session group_concat_max_len = @keylane_most".to_owned(),
        "commit".to_owned(),
    ]
}

/// Returns a table of lanes, tokens and the reports about them, in the order of the lanes; `None`
/// if there are no reports.
fn constants<'a>(said: impl Iterator<Item = (&'a Claimed, String)>) -> Option<String> {
    let mut said = Vec::from_iter(said);
    said.sort_by_key(|(claimed, _)| claimed.lane);
    let rows = said.iter().map(|(claimed, said)| {
        let (lane, token) = (hex(claimed.lane), claimed.token);
        format!("select {lane} as lane, {token} as token, {said}")
    });
    (!said.is_empty()).then(|| table(rows))
}

fn name_of(name: &MessageRef) -> String {
    let MessageRef { sequence, nonce } = name;
    format!("{sequence} as sequence, {nonce} as nonce")
}

fn brought(lane: LaneId, row: &MySqlRow) -> Result<Brought, SqlError> {
    Ok(Brought {
        lane,
        nonce: row.get("nonce"),
        attempts: row.get("attempts"),
        message: message_of(row)?,
    })
}

pub(super) fn found_of(row: &MySqlRow) -> Found {
    Found {
        claimed: Claimed {
            lane: lane_of(row),
            token: row.get("token"),
        },
        last: row.get("last"),
        redriven: row.get("redriven"),
        crashes: row.get("crashes"),
        place: Place::default(),
        messages: 0,
    }
}

fn lane_of(row: &MySqlRow) -> LaneId {
    LaneId::from_bytes(row.get("lane"))
}
