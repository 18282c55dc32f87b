//! The order of candidates, and what each of them waits for: pure.

use keylane_leader::store::{CandidateId, TermRecord};

use super::candidate::Candidate;

/// The candidates of an election, in their order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lineup {
    candidates: Vec<Candidate>,
    /// The one that the leader has chosen to follow it.
    chosen: Option<CandidateId>,
}

/// What a candidate, or one that only watches, waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Watches {
    /// The record of the term.
    pub(super) record: bool,
    /// The lease of the term.
    pub(super) lease: bool,
    /// The nodes of candidates: its own, and that of the one before it.
    pub(super) nodes: Vec<String>,
}

impl Lineup {
    pub(super) fn new<'a>(
        names: impl Iterator<Item = &'a str>,
        chosen: Option<CandidateId>,
    ) -> Self {
        let mut candidates = Vec::from_iter(names.filter_map(Candidate::of));
        candidates.sort_unstable_by_key(|one| (one.rank, one.number));
        Self { candidates, chosen }
    }

    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Returns the order after a record was written: its leader is no candidate.
    pub(super) fn after(mut self, term: &TermRecord) -> Self {
        self.candidates.retain(|one| one.id != term.leader);
        self.chosen.clone_from(&term.chosen);
        self
    }

    /// Returns the paths of the nodes of a candidate: usually one.
    pub(super) fn paths_of(&self, id: &CandidateId, folder: &str) -> Vec<String> {
        let of = self.candidates.iter().filter(|one| one.id == *id);
        of.map(|one| one.path(folder)).collect()
    }

    /// Returns the candidate that may ask for the lease.
    pub(super) fn next(&self) -> Option<&Candidate> {
        let is_chosen = |one: &&Candidate| Some(&one.id) == self.chosen.as_ref();
        let chosen = self.candidates.iter().find(is_chosen);
        chosen.or_else(|| self.candidates.first())
    }

    /// Returns what a candidate with a node of this session waits for; `None` for one that is not
    /// there.
    ///
    /// - The next one: the lease, and the record, because its leader may be leaving.
    /// - The first one, if another is chosen: the record, and the chosen one.
    /// - Any other one: the one before it, and no more.
    ///
    /// Each waits for its own node too: it is written to when the candidate is chosen.
    pub(super) fn watches(&self, id: &CandidateId, session: i64, folder: &str) -> Option<Watches> {
        let is_own = |one: &Candidate| one.id == *id && one.session == session;
        let place = self.candidates.iter().position(is_own)?;
        let next = self.next()?;
        let is_next = next.id == *id;
        let before = match place.checked_sub(1) {
            _ if is_next => None,
            None => Some(next),
            Some(before) => self.candidates.get(before),
        };
        let own = &self.candidates[place];
        let nodes = [Some(own), before].into_iter().flatten();
        Some(Watches {
            record: is_next || place == 0,
            lease: is_next,
            nodes: nodes.map(|one| one.path(folder)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> CandidateId {
        CandidateId::new(name).unwrap()
    }

    fn lineup(chosen: Option<&str>) -> Lineup {
        // In the order `c`, `a`, `b`, and the rest of an earlier session.
        let names = [
            "00002~07~a~1",
            "00002~07~b~3",
            "00001~07~c~9",
            "00003~05~a~0",
            "other",
        ];
        Lineup::new(names.into_iter(), chosen.map(id))
    }

    fn watches(lineup: &Lineup, name: &str) -> (bool, bool, Vec<String>) {
        let watches = lineup.watches(&id(name), 7, "/e").unwrap();
        (watches.record, watches.lease, watches.nodes)
    }

    fn paths(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("/e/{name}")).collect()
    }

    #[test]
    fn each_waits_for_the_one_before_it() {
        let lineup = lineup(None);
        assert_eq!(lineup.next().unwrap().id, id("c"));
        let (c, a, b) = ("00001~07~c~9", "00002~07~a~1", "00002~07~b~3");
        assert_eq!(watches(&lineup, "c"), (true, true, paths(&[c])));
        assert_eq!(watches(&lineup, "a"), (false, false, paths(&[a, c])));
        assert_eq!(watches(&lineup, "b"), (false, false, paths(&[b, a])));
        // A node of an earlier session is not its own.
        assert_eq!(lineup.watches(&id("a"), 5, "/e").unwrap().nodes.len(), 2);
        assert_eq!(lineup.watches(&id("b"), 5, "/e"), None);
        assert_eq!(lineup.paths_of(&id("a"), "/e").len(), 2);
    }

    #[test]
    fn the_chosen_one_is_next_and_the_first_waits_for_it() {
        let lineup = lineup(Some("b"));
        assert_eq!(lineup.next().unwrap().id, id("b"));
        let (c, a, b) = ("00001~07~c~9", "00002~07~a~1", "00002~07~b~3");
        assert_eq!(watches(&lineup, "b"), (true, true, paths(&[b])));
        assert_eq!(watches(&lineup, "c"), (true, false, paths(&[c, b])));
        assert_eq!(watches(&lineup, "a"), (false, false, paths(&[a, c])));
        // One that is not there is not chosen.
        assert_eq!(self::lineup(Some("x")).next().unwrap().id, id("c"));
    }
}
