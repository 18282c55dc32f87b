//! The interface between candidates and their store.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use keylane_leases::error::StoreError;
use keylane_leases::{LONGEST_TTL, LeaseStore, Token};

/// Keeps elections: who waits for the term of an election, and which term began last.
///
/// A term is a *lease* on the key of its election, and its token is the token of that lease:
/// [`LeaseStore`] grants, renews and releases it. This trait adds what a lease lacks: candidates
/// that wait in an order, a word from the leader that it is leaving, and a lasting record of the
/// last term, which says whether that term has ended in order.
///
/// # Implementing a store
///
/// Each call is one round trip, or a few. The suite in [`conformance`](crate::conformance) checks
/// these rules. Nothing here decides who leads: only the lease does. So an answer that is late or
/// lost costs time, and no more.
///
/// # Cancel safety
///
/// The caller drops a call that takes too long. Once polled, the call may be done or not, and may
/// be done later than a call that follows it.
#[async_trait]
pub trait ElectionStore: LeaseStore {
    /// Enters a candidate into an election, or keeps it entered for another `ttl`. Returns the
    /// election as it is then.
    ///
    /// A candidate that is not entered again within `ttl` is removed, at the latest a little later.
    /// A store that watches its clients by sessions may use the session's time-out instead. A
    /// candidate that is entered already keeps its place.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: the candidate may be entered or not.
    async fn enter(
        &self,
        key: &Bytes,
        entry: &Entry,
        ttl: Duration,
    ) -> Result<Election, StoreError>;

    /// Returns how often a candidate enters again, for a term with this time to live. It is entered
    /// for three times as long, or for `ttl` if that is longer.
    ///
    /// By default a third of `ttl`, as a store needs whose candidates run out. A store that knows
    /// by sessions which candidates are there returns more: each entry costs it a read.
    fn enter_every(&self, ttl: Duration) -> Duration {
        ttl / 3
    }

    /// Returns the longest time to live of a term that the store can grant. A candidate that asks
    /// for more is refused at its start.
    ///
    /// By default a day, [`LONGEST_TTL`]. A store whose terms end with a session has less.
    fn longest_ttl(&self) -> Duration {
        LONGEST_TTL
    }

    /// Returns the election as it is.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be reached.
    async fn look(&self, key: &Bytes) -> Result<Election, StoreError>;

    /// Removes a candidate from an election. Ignores one that is not entered.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: the candidate may be removed or not.
    async fn withdraw(&self, key: &Bytes, candidate: &CandidateId) -> Result<(), StoreError>;

    /// Records the stage of a term, and removes its leader from the candidates, in one step.
    ///
    /// The record of an election lasts; it does not end with a lease or a session. It is replaced
    /// only by the same term, or by one with a higher token: otherwise nothing is written, and
    /// the answer is [`Recorded::Refused`]. A stage never goes back within a term:
    /// [`Began`](Stage::Began), [`Leaving`](Stage::Leaving), [`Ended`](Stage::Ended) is the order,
    /// and an earlier stage than the recorded one is ignored, with the answer
    /// [`Recorded::Written`].
    ///
    /// With [`Stage::Ended`] a store may release the lease of the term too, in the step that writes
    /// the record: the next leader waits for one call less. It does so only if it writes the
    /// record, and if the lease is still held under the token of the record. The caller has stopped
    /// before, records the same again if the answer was lost, and releases the lease afterwards in
    /// each case. A store that does so calls
    /// [`check_end`](crate::conformance::check_end) in its tests.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: the record may be written or not.
    async fn record(&self, key: &Bytes, term: &TermRecord) -> Result<Recorded, StoreError>;

    /// Returns the history that the store is in: see [`History`].
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be reached.
    async fn history(&self) -> Result<History, StoreError>;

    /// Waits until the election is no longer as this candidate has seen it, as far as that matters
    /// to it: it may have become the next one, or the lease of the term may be free, or the leader
    /// may be leaving. For `None`, which only watches, until there is another leader or stage, or
    /// none.
    ///
    /// It returns at once if that was so before the call. It may return without a reason; the
    /// caller looks again. A store that cannot tell waits for a while and returns: the caller also
    /// looks when a lease would run out, and when it enters again, and drops this future then.
    ///
    /// [`matters`] decides what matters. No change may wake all candidates: each waits for the one
    /// before it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be reached. The caller looks again after a pause.
    async fn changed(
        &self,
        key: &Bytes,
        candidate: Option<&CandidateId>,
        seen: &Election,
    ) -> Result<(), StoreError>;
}

/// The entry of a candidate in an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The candidate.
    pub id: CandidateId,
    /// Candidates of a lower rank come first. Of those with the same rank, the one that entered
    /// first. A rank never takes the term from a leader.
    pub rank: u16,
}

/// The name of a candidate: unique for each candidate, also within one process.
///
/// At most 100 bytes of visible ASCII without `/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CandidateId(String);

/// The most bytes of a [`CandidateId`].
pub(crate) const LONGEST_ID: usize = 100;

impl CandidateId {
    /// Creates the id of this text. Returns `None` if it is empty, too long, or has other bytes
    /// than visible ASCII, or a `/`.
    pub fn new(id: impl Into<String>) -> Option<Self> {
        let id = id.into();
        let is_legal = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
        let is_short = (1..=LONGEST_ID).contains(&id.len());
        (is_short && id.bytes().all(is_legal)).then_some(Self(id))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CandidateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The history that a store is in: a text that changes when the store may have lost what it has
/// confirmed.
///
/// A standby that was behind and is promoted, a snapshot that is restored, a data folder that is
/// put back: after that, tokens may repeat, so tokens of two histories have no order. A term
/// carries the history of its grant. A leader that sees another one stops leading, and a fence
/// compares both. A store that cannot know returns one text for ever, and its documents say
/// what that means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct History(String);

impl History {
    /// Creates a history of this name: at most 100 bytes.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Returns the history as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An election, as a store sees it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// The holder of the lease of the term, if there is one.
    pub holder: Option<Holder>,
    /// The last term that was recorded, if there was one.
    pub term: Option<TermRecord>,
    /// Which candidate may ask for the lease when it is free: the one that the last leader has
    /// [chosen](TermRecord::chosen) if it is entered, or else the first by rank and time. `None`
    /// if there is no candidate.
    pub next: Option<CandidateId>,
    /// A number for the store itself: the revision of what it has read, or zero.
    pub revision: u64,
}

/// The holder of the lease of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The token of the lease.
    pub token: Token,
    /// How long it lasts, unless it is renewed or released. A store that does not know it returns
    /// the longest time that it may be.
    pub remaining: Duration,
}

/// The record of a term: the last one of its election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermRecord {
    /// The token of the term.
    pub token: Token,
    /// Its leader.
    pub leader: CandidateId,
    /// How far it is.
    pub stage: Stage,
    /// The successor that the leader has chosen. Set for [`Stage::Leaving`] and [`Stage::Ended`]
    /// only.
    pub chosen: Option<CandidateId>,
}

/// How far a term is. The order is that of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The leader may act. If its lease is free, the leader was lost.
    Began,
    /// The leader is about to hand over.
    Leaving,
    /// The leader has handed over, and does nothing more.
    Ended,
}

impl Stage {
    /// Returns the name of the stage: `began`, `leaving` or `ended`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Leaving => "leaving",
            Self::Ended => "ended",
        }
    }

    /// Returns the stage of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Began, Self::Leaving, Self::Ended];
        all.into_iter().find(|stage| stage.as_str() == name)
    }
}

/// The answer to [`ElectionStore::record`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// The record is written. It has replaced this one; `None` if there was none.
    Written(Option<TermRecord>),
    /// A term with a higher token was recorded before.
    Refused,
}

/// Returns the text of a record, for stores that keep one value: `token/leader/stage/chosen`, the
/// last part empty if none is chosen.
pub fn encode(term: &TermRecord) -> String {
    let chosen = term.chosen.as_ref().map_or("", CandidateId::as_str);
    let stage = term.stage.as_str();
    format!("{}/{}/{stage}/{chosen}", term.token, term.leader)
}

/// Returns the record of this text; `None` if it is none.
pub fn decode(text: &str) -> Option<TermRecord> {
    let parts: Vec<&str> = text.split('/').collect();
    let [token, leader, stage, chosen] = parts[..] else {
        return None;
    };
    Some(TermRecord {
        token: Token(token.parse().ok()?),
        leader: CandidateId::new(leader)?,
        stage: Stage::from_name(stage)?,
        chosen: match chosen {
            "" => None,
            chosen => Some(CandidateId::new(chosen)?),
        },
    })
}

/// Returns what [`ElectionStore::record`] does to the record that is there: pure, for stores that
/// read and write in one step of their own.
pub fn after(was: Option<&TermRecord>, new: &TermRecord) -> Recorded {
    match was {
        Some(was) if was.token > new.token => Recorded::Refused,
        _ => Recorded::Written(was.cloned()),
    }
}

/// Returns whether [`ElectionStore::changed`] returns for a candidate, or for `None` for one that
/// only watches, that has seen an election as `seen`, and that is `now` as it is: pure.
///
/// - The turn of a candidate matters to it: whether it is the [next](Election::next) one.
/// - To the next one, and to one that only watches, the lease and the record of the term matter
///   too: which term holds the lease, and what the leader does.
/// - How long the lease lasts matters to none of them.
pub fn matters(candidate: Option<&CandidateId>, seen: &Election, now: &Election) -> bool {
    let token = |of: &Election| of.holder.as_ref().map(|holder| holder.token);
    let is_other = token(now) != token(seen) || now.term != seen.term;
    let Some(candidate) = candidate else {
        return is_other;
    };
    let is_next = now.next.as_ref() == Some(candidate);
    let was_next = seen.next.as_ref() == Some(candidate);
    is_next != was_next || is_next && is_other
}

/// Returns whether [`ElectionStore::record`] replaces the record that is there.
pub fn replaces(was: Option<&TermRecord>, new: &TermRecord) -> bool {
    was.is_none_or(|was| match was.token.cmp(&new.token) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Equal => was.stage <= new.stage,
        std::cmp::Ordering::Greater => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> CandidateId {
        CandidateId::new(name).unwrap()
    }

    fn election(next: Option<&str>, held: Option<u64>, term: (u64, Stage)) -> Election {
        Election {
            holder: held.map(|token| Holder {
                token: Token(token),
                remaining: Duration::from_secs(token),
            }),
            term: Some(TermRecord {
                token: Token(term.0),
                leader: id("x"),
                stage: term.1,
                chosen: None,
            }),
            next: next.map(id),
            revision: 0,
        }
    }

    #[test]
    fn only_a_turn_matters_and_to_the_next_one_the_term_too() {
        use Stage::{Began, Leaving};
        let seen = election(Some("a"), Some(1), (1, Began));
        let mut renewed = seen.clone();
        renewed.revision = 9;
        if let Some(holder) = &mut renewed.holder {
            holder.remaining *= 2;
        }
        let none = election(None, Some(1), (1, Began));
        let other = election(Some("b"), Some(1), (1, Began));
        let free = election(Some("a"), None, (1, Began));
        let taken = election(Some("a"), Some(2), (1, Began));
        let leaving = election(Some("a"), Some(1), (1, Leaving));
        let later = election(Some("a"), Some(1), (2, Began));
        let all_else = election(Some("b"), None, (2, Leaving));
        let cases = [
            // What is there now, and whether it matters to a, to b, to c, and to one that watches.
            (&seen, [false, false, false, false]),
            (&renewed, [false, false, false, false]),
            (&none, [true, false, false, false]),
            (&other, [true, true, false, false]),
            (&free, [true, false, false, true]),
            (&taken, [true, false, false, true]),
            (&leaving, [true, false, false, true]),
            (&later, [true, false, false, true]),
            (&all_else, [true, true, false, true]),
        ];
        for (now, expected) in cases {
            let those = [Some(id("a")), Some(id("b")), Some(id("c")), None];
            let found = those.map(|one| matters(one.as_ref(), &seen, now));
            assert_eq!(found, expected, "{now:?}");
        }
    }
}
