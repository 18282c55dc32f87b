//! Who is next in an election, and what a candidate watches: pure.

use std::time::Duration;

use keylane_leader::store::{CandidateId, Election, Holder, TermRecord};
use keylane_leases::Token;

/// An election, as one read of etcd has seen it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Board {
    pub(super) holder: Option<Token>,
    pub(super) term: Option<TermRecord>,
    /// In their order.
    candidates: Vec<Entered>,
}

/// A candidate that is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entered {
    pub(super) id: CandidateId,
    pub(super) rank: u16,
    /// The revision at which it was entered.
    pub(super) since: i64,
}

/// A key that a candidate watches, and which of its changes matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The key of the lease: its end, and another holder.
    Lease,
    /// The record of the term: each change.
    Record,
    /// The candidate's own key: each change. It is written when the leader has chosen it.
    Own,
    /// The key of another candidate: its end.
    Other(CandidateId),
}

impl Board {
    pub(super) fn new(
        holder: Option<Token>,
        term: Option<TermRecord>,
        mut candidates: Vec<Entered>,
    ) -> Self {
        candidates.sort_by_key(|entered| (entered.rank, entered.since));
        Self {
            holder,
            term,
            candidates,
        }
    }

    /// Returns the candidate that may ask for the lease when it is free.
    pub(super) fn next(&self) -> Option<&CandidateId> {
        let first = || self.candidates.first().map(|entered| &entered.id);
        self.chosen().or_else(first)
    }

    /// Returns the candidate that the leader has chosen, if it is entered.
    fn chosen(&self) -> Option<&CandidateId> {
        let chosen = self.term.as_ref()?.chosen.as_ref()?;
        self.place(chosen).map(|at| &self.candidates[at].id)
    }

    fn place(&self, id: &CandidateId) -> Option<usize> {
        self.candidates.iter().position(|entered| entered.id == *id)
    }

    /// Returns the election as far as it is known without how long the lease lasts.
    pub(super) fn election(&self) -> Election {
        Election {
            holder: self.holder.map(|token| Holder {
                token,
                remaining: Duration::ZERO,
            }),
            term: self.term.clone(),
            next: self.next().cloned(),
            revision: 0,
        }
    }

    /// Returns what a candidate watches: no change wakes more than a few.
    ///
    /// The next one watches the lease and the record. Each other one watches the one before it: it
    /// cannot become the next one while that is there, unless the leader chooses it.
    pub(super) fn targets(&self, candidate: Option<&CandidateId>) -> Vec<Target> {
        let Some(id) = candidate else {
            return vec![Target::Lease, Target::Record];
        };
        let place = self.place(id);
        let mut targets = Vec::from_iter(place.map(|_| Target::Own));
        let before = place.unwrap_or(self.candidates.len()).checked_sub(1);
        match (self.next(), before) {
            (Some(next), _) if next == id => targets.extend([Target::Lease, Target::Record]),
            (_, Some(before)) => targets.push(Target::Other(self.candidates[before].id.clone())),
            // The first one, while the leader has chosen another.
            (Some(chosen), None) => {
                targets.extend([Target::Record, Target::Other(chosen.clone())]);
            }
            (None, None) => targets.extend([Target::Lease, Target::Record]),
        }
        targets
    }
}

#[cfg(test)]
mod tests {
    use keylane_leader::store::Stage;

    use super::*;

    fn id(name: &str) -> CandidateId {
        CandidateId::new(name).unwrap()
    }

    fn entered(name: &str, rank: u16, since: i64) -> Entered {
        Entered {
            id: id(name),
            rank,
            since,
        }
    }

    fn term(token: u64, chosen: Option<&str>) -> TermRecord {
        TermRecord {
            token: Token(token),
            leader: id("leader"),
            stage: match chosen {
                Some(_) => Stage::Leaving,
                None => Stage::Began,
            },
            chosen: chosen.map(id),
        }
    }

    /// Three candidates in the order a, b, c.
    fn board(chosen: Option<&str>) -> Board {
        let candidates = vec![entered("c", 2, 3), entered("b", 1, 9), entered("a", 1, 5)];
        Board::new(Some(Token(2)), Some(term(2, chosen)), candidates)
    }

    fn other(name: &str) -> Target {
        Target::Other(id(name))
    }

    #[test]
    fn the_order_is_that_of_ranks_and_times() {
        assert_eq!(board(None).next(), Some(&id("a")));
        assert_eq!(board(Some("c")).next(), Some(&id("c")));
        assert_eq!(board(Some("x")).next(), Some(&id("a")));
        assert_eq!(Board::default().next(), None);
    }

    #[test]
    fn each_candidate_watches_the_one_before_it() {
        use Target::{Lease, Own, Record};
        let board = board(None);
        assert_eq!(board.targets(Some(&id("a"))), [Own, Lease, Record]);
        assert_eq!(board.targets(Some(&id("b"))), [Own, other("a")]);
        assert_eq!(board.targets(Some(&id("c"))), [Own, other("b")]);
        // It is not entered any more.
        assert_eq!(board.targets(Some(&id("x"))), [other("c")]);
        assert_eq!(board.targets(None), [Lease, Record]);
        let empty = Board::default();
        assert_eq!(empty.targets(Some(&id("a"))), [Lease, Record]);
    }

    #[test]
    fn the_chosen_one_watches_the_lease_and_the_first_one_watches_it() {
        use Target::{Lease, Own, Record};
        let board = board(Some("c"));
        assert_eq!(board.targets(Some(&id("c"))), [Own, Lease, Record]);
        assert_eq!(board.targets(Some(&id("a"))), [Own, Record, other("c")]);
        assert_eq!(board.targets(Some(&id("b"))), [Own, other("a")]);
    }
}
