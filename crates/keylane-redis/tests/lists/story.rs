//! The history of the elements of a list, from its handlers, and its check.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use keylane_testkit::{Acceptance, Evidence, History, Outcome, Rule};
use tokio::time::Instant;

use crate::sink::{Entry, Place, What};

/// A fault of a worker, and its elements in the server at that time.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The length of the journal when it was over.
    pub(crate) place: Place,
    /// `None`: the worker does not know of it, and goes on until it learns of it.
    pub(crate) worker: Option<u32>,
    pub(crate) held: HashSet<u64>,
}

impl Fault {
    /// Whether it may have been done to this worker.
    fn is_of(&self, worker: u32) -> bool {
        self.worker.is_none_or(|own| own == worker)
    }
}

/// The whole history. The ids of a key ascend in the order of the pushes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    /// Each id and its key.
    pub(crate) pushed: BTreeMap<u64, u64>,
    pub(crate) journal: Vec<Entry>,
    pub(crate) faults: Vec<Fault>,
    /// Workers whose elements at their fault are unknown: the server had given them back before.
    pub(crate) unread: HashSet<u32>,
    /// Pushes that were never answered.
    pub(crate) unknown: HashSet<u64>,
    /// Confirmed elements that may be lost.
    pub(crate) may_be_lost: HashSet<u64>,
    /// Each element may come again at any time.
    pub(crate) may_repeat: bool,
}

/// The result, if there is no error.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) handled: usize,
    /// Confirmed elements that were never handled.
    pub(crate) lost: usize,
    /// Unconfirmed elements that were handled.
    pub(crate) unknown: usize,
    /// Elements that were handed out again, in flight at a fault …
    pub(crate) interrupted: usize,
    /// … or done, and not confirmed.
    pub(crate) repeated: usize,
    /// Most repetitions for one fault, and most elements that a worker had at one.
    pub(crate) most_repeated: usize,
    pub(crate) most_held: usize,
    /// Writes that the sink has refused.
    pub(crate) refused: usize,
    /// Elements that were handed out again at faults with unknown elements, or by slow workers.
    pub(crate) excused: usize,
}

impl Story {
    /// Fails if there is an error.
    pub(crate) fn judge(&self) -> Verdict {
        let mut verdict = Verdict {
            handled: 0,
            lost: 0,
            unknown: 0,
            interrupted: 0,
            repeated: 0,
            most_repeated: 0,
            most_held: self
                .faults
                .iter()
                .map(|fault| fault.held.len())
                .max()
                .unwrap_or(0),
            refused: self.journal.iter().filter(|entry| !entry.is_taken).count(),
            excused: 0,
        };
        let history = History::new();
        let ends = |entry: &&Entry| entry.what == What::End && entry.is_taken;
        let ended = self.journal.iter().filter(ends).map(|entry| entry.id);
        let ended: HashSet<u64> = ended.collect();
        // A lost element has no place in the order of its key, also if its handler had begun.
        let is_judged = |id: u64| ended.contains(&id) || !self.may_miss(id);
        for (id, key) in &self.pushed {
            if is_judged(*id) {
                history.sent(*key, *id, *id, Acceptance::Ok);
            }
        }
        let mut of_key = HashMap::<u64, Vec<u64>>::new();
        for (id, key) in &self.pushed {
            of_key.entry(*key).or_default().push(*id);
        }
        let mut started = HashMap::<u64, (Place, Entry)>::new();
        let mut attempts = HashMap::<u64, u32>::new();
        let mut running = HashMap::<(u64, u64), u32>::new();
        let mut done = HashSet::<u64>::new();
        // For each key, how many of its first elements are done.
        let mut first_open = HashMap::<u64, usize>::new();
        let mut by_fault = HashMap::<usize, usize>::new();
        let mut used = HashSet::new();
        let mut done_at = HashMap::<u64, Place>::new();
        for (place, entry) in self.journal.iter().enumerate() {
            if entry.what == What::End && entry.is_taken {
                done_at.entry(entry.id).or_insert(place);
            }
        }
        for (place, entry) in self.journal.iter().enumerate() {
            let Entry { key, id, token, .. } = *entry;
            if entry.what == What::Lost {
                continue;
            }
            assert_eq!(self.pushed.get(&id), Some(&key), "invented: {entry:?}");
            history.sink_write(key, token, entry.is_taken);
            if !entry.is_taken {
                continue;
            }
            if entry.what == What::End {
                let Some(attempt) = running.remove(&(id, token)) else {
                    panic!("{entry:?} ends and has not begun");
                };
                history.end(id, attempt, Outcome::Ok);
                done.insert(id);
                continue;
            }
            if let Some((before, earlier)) = started.insert(id, (place, *entry)) {
                match self.reason(before, &earlier, &used, &done_at) {
                    Some(Reason::Fault(number)) => {
                        used.insert((number, id));
                        history.revoke(place as u64);
                        match done.contains(&id) {
                            true => {
                                verdict.repeated += 1;
                                *by_fault.entry(number).or_default() += 1;
                            }
                            false => verdict.interrupted += 1,
                        }
                    }
                    Some(Reason::Slow) => {
                        history.revoke(place as u64);
                        verdict.excused += 1;
                    }
                    None => panic!(
                        "{entry:?} at {place} without a reason, after {earlier:?} at {before}\n{}",
                        self.around(before, place, &earlier)
                    ),
                }
            }
            // All elements before it are done.
            let ids = &of_key[&key];
            let open = first_open.entry(key).or_default();
            while ids.get(*open).is_some_and(|id| done.contains(id)) {
                *open += 1;
            }
            let own = ids.binary_search(&id).unwrap();
            for before in ids.iter().take(own).skip(*open) {
                let may = done.contains(before) || self.may_miss(*before);
                assert!(may, "{entry:?} begins before {before} of its key is done");
            }
            let attempt = attempts.entry(id).or_default();
            *attempt += 1;
            if is_judged(id) {
                history.start(id, *attempt, token);
            }
            running.insert((id, token), *attempt);
        }
        let lost: Vec<_> = self.pushed.keys().filter(|id| !done.contains(id)).collect();
        let is_confirmed = |id: &&&u64| !self.unknown.contains(id);
        verdict.lost = lost.iter().filter(is_confirmed).count();
        verdict.unknown = self.unknown.intersection(&done).count();
        let unexpected: Vec<_> = lost.iter().filter(|id| !self.may_miss(***id)).collect();
        assert!(unexpected.is_empty(), "lost: {unexpected:?}");
        verdict.handled = done.len();
        verdict.most_repeated = by_fault.into_values().max().unwrap_or(0);
        let evidence = Evidence::new().quiescent(Instant::now());
        let judged = history.check(&evidence).expect("the history is right");
        judged.assert_judged(&[
            Rule::NoLoss,
            Rule::NoInvention,
            Rule::Exclusion,
            Rule::Order,
            Rule::Duplicates,
            Rule::Fencing,
        ]);
        verdict
    }

    /// Returns the events around a worker that had an element here, and around its present worker.
    fn around(&self, before: Place, place: Place, earlier: &Entry) -> String {
        let faults = self
            .faults
            .iter()
            .filter(|fault| fault.is_of(earlier.worker) && fault.held.contains(&earlier.id));
        let of_key = |id: &&u64| self.pushed.get(*id) == Some(&earlier.key);
        let faults = faults.map(|fault| {
            let held: BTreeSet<_> = fault.held.iter().filter(of_key).collect();
            format!("fault at {}, which held {held:?} of the key\n", fault.place)
        });
        let entries = self.journal.iter().enumerate().take(place + 1);
        let entries = entries.skip(before.saturating_sub(2_000));
        let entries = entries.filter(|(_, entry)| match entry.what {
            What::Lost => entry.worker == earlier.worker,
            _ => entry.key == earlier.key,
        });
        let entries = entries.map(|(place, entry)| format!("{place}: {entry:?}\n"));
        faults.chain(entries).collect()
    }

    fn may_miss(&self, id: u64) -> bool {
        self.may_be_lost.contains(&id) || self.unknown.contains(&id)
    }

    /// Whether it is the first undone element of its key at the worker: its handler may have been
    /// in flight, and may have come to its first word only when the worker went on.
    fn is_first(&self, fault: &Fault, entry: &Entry, done_at: &HashMap<u64, Place>) -> bool {
        let is_done = |id: u64| done_at.get(&id).is_some_and(|done| *done < fault.place);
        let own = |id: &&u64| self.pushed.get(*id) == Some(&entry.key) && !is_done(**id);
        fault.held.iter().filter(own).min() == Some(&entry.id)
    }

    /// Returns why an element that was started here may start again.
    fn reason(
        &self,
        place: Place,
        earlier: &Entry,
        used: &HashSet<(usize, u64)>,
        done_at: &HashMap<u64, Place>,
    ) -> Option<Reason> {
        let mut faults = self.faults.iter().enumerate();
        let fault = faults.find(|(number, fault)| {
            // One fault repeats each element once.
            if used.contains(&(*number, earlier.id)) {
                return false;
            }
            let is_its = fault.is_of(earlier.worker);
            let is_late = || fault.worker.is_none() || self.is_first(fault, earlier, done_at);
            is_its && fault.held.contains(&earlier.id) && (fault.place > place || is_late())
        });
        if let Some((number, _)) = fault {
            return Some(Reason::Fault(number));
        }
        let worker = earlier.worker;
        let is_slow = self.unread.contains(&worker) || self.was_slow(worker, place);
        (is_slow || self.may_repeat).then_some(Reason::Slow)
    }

    /// Whether a worker has lost its elements here without a fault of the test. Its first report
    /// after a pause belongs to that pause.
    fn was_slow(&self, worker: u32, place: Place) -> bool {
        let is_lost = |place: &Place| {
            let entry = &self.journal[*place];
            entry.what == What::Lost && entry.worker == worker
        };
        let said_from = |place: Place| (place..self.journal.len()).filter(is_lost);
        let of_faults: HashSet<Place> = self
            .faults
            .iter()
            .filter(|fault| fault.worker == Some(worker))
            .filter_map(|fault| said_from(fault.place).next())
            .collect();
        said_from(place).any(|place| !of_faults.contains(&place))
    }
}

enum Reason {
    /// The worker had it at this fault.
    Fault(usize),
    Slow,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            handled,
            lost,
            unknown,
            interrupted,
            repeated,
            most_repeated,
            most_held,
            refused,
            excused,
        } = self;
        write!(
            f,
            "{handled} handled ({unknown} of them never confirmed), {lost} lost, 0 reordered; handed out \
             again: {interrupted} in flight, {repeated} done and not confirmed (at most {most_repeated} \
             for one fault, of {most_held} held), {excused} besides; {refused} stale writes refused"
        )
    }
}

/// The check detects the errors it is for.
mod tests {
    use super::*;

    const START: What = What::Start;
    const END: What = What::End;
    const LOST: (What, u32, u64, u64) = (What::Lost, 1, 1, 0);

    fn is_good(entries: &[(What, u32, u64, u64)], faults: &[(Place, u32, &[u64])]) -> bool {
        let journal = entries.iter().map(|(what, worker, id, token)| Entry {
            what: *what,
            worker: *worker,
            key: 1,
            id: *id,
            token: token % 1_000,
            is_taken: *token < 1_000,
        });
        let faults = faults.iter().map(|(place, worker, id)| Fault {
            place: *place,
            worker: Some(*worker),
            held: id.iter().copied().collect(),
        });
        let story = Story {
            pushed: [(1, 1), (2, 1)].into(),
            journal: journal.collect(),
            faults: faults.collect(),
            ..Story::default()
        };
        std::panic::catch_unwind(|| story.judge()).is_ok()
    }

    #[test]
    fn bad_stories_are_found() {
        let one = [(START, 1, 1, 10), (END, 1, 1, 10)];
        let two = [(START, 1, 2, 11), (END, 1, 2, 11)];
        let again = [(START, 2, 1, 12), (END, 2, 1, 12)];
        assert!(is_good(&[one, two].concat(), &[]));
        assert!(!is_good(&one, &[]), "lost");
        assert!(!is_good(&[two, one].concat(), &[]), "reordered");
        let invented = [(START, 1, 3, 12), (END, 1, 3, 12)];
        assert!(!is_good(&[one, two, invented].concat(), &[]), "invented");
        let repeated = [one, again, [(START, 2, 2, 13), (END, 2, 2, 13)]].concat();
        assert!(!is_good(&repeated, &[]), "without a fault");
        assert!(!is_good(&repeated, &[(2, 2, &[1])]), "of another worker");
        assert!(!is_good(&repeated, &[(2, 1, &[2])]), "of another element");
        assert!(is_good(&repeated, &[(2, 1, &[1])]));
        let behind = [&one[..], &two, &[(START, 2, 2, 13), (END, 2, 2, 13)]].concat();
        assert!(is_good(&behind, &[(3, 1, &[2])]));
        // Begun when the worker had gone on: the first one that was left, and another one.
        assert!(is_good(&behind, &[(2, 1, &[1, 2])]));
        assert!(!is_good(&behind, &[(1, 1, &[1, 2])]));
        let end = [(START, 2, 2, 13), (END, 2, 2, 13)];
        // The late end of the first one: refused, and accepted.
        for (token, may_be) in [(1_010, true), (10, false)] {
            let overlapping = [&one[..1], &again, &[(END, 1, 1, token)], &end].concat();
            assert_eq!(is_good(&overlapping, &[(1, 1, &[1])]), may_be);
        }
        // Slow, after a pause: its report about the pause is no excuse.
        let slow = [&[LOST], &one[..], &[LOST], &again, &end].concat();
        assert!(is_good(&slow, &[(0, 1, &[2])]));
        let not_slow = [&[LOST], &one[..], &again, &end].concat();
        assert!(!is_good(&not_slow, &[(0, 1, &[2])]));
        let of_the_fault = [&one[..], &[LOST], &again, &end].concat();
        assert!(is_good(&of_the_fault, &[]));
        assert!(!is_good(&of_the_fault, &[(2, 1, &[2])]));
        let lower = [&one[..1], &[(START, 2, 1, 9), (END, 2, 1, 9)], &end].concat();
        assert!(!is_good(&lower, &[(1, 1, &[1])]), "a lower token is taken");
    }
}
