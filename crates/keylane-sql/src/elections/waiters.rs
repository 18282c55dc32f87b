//! Who waits for a change of an election in this process, and what wakes it.
//!
//! A change wakes only those whose turn it may bring: the candidate behind the one that is gone, or
//! the first one. While a waiter looks at the election, every change wakes it. So it misses nothing
//! between its look and its rest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use keylane_connector::lock;
use tokio::sync::Notify;

use crate::listening::Heard;

/// What was announced of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change<'a> {
    /// The lease of the term was released.
    Free,
    /// A candidate is gone, or has lost its place.
    Gone(&'a str),
    /// A term was recorded, and its leader is no candidate any more.
    Term { leader: &'a str, chosen: &'a str },
}

/// Returns which election an announcement is about, and what has changed.
fn read(payload: &str) -> Option<(&str, Change<'_>)> {
    let (election, change) = payload.split_once('/')?;
    let change = match change.split_once('/') {
        None if change == "free" => Change::Free,
        Some(("gone", candidate)) => Change::Gone(candidate),
        Some(("term", term)) => {
            let (leader, chosen) = term.split_once('/')?;
            Change::Term { leader, chosen }
        }
        _ => return None,
    };
    Some((election, change))
}

/// What wakes a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// It looks at the election just now.
    All,
    /// It only watches: who leads, and that nothing does.
    Terms,
    Turn(Turn),
}

/// The place of a candidate that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) candidate: String,
    /// The candidate right before it. `None` for the first one.
    pub(super) ahead: Option<String>,
    /// That one is ahead because the leader has chosen it.
    pub(super) is_chosen: bool,
}

impl Waits {
    fn is_woken_by(&self, change: Change<'_>) -> bool {
        let turn = match self {
            Self::All => return true,
            Self::Terms => return matches!(change, Change::Term { .. } | Change::Free),
            Self::Turn(turn) => turn,
        };
        let is_first = turn.ahead.is_none();
        let is_ahead = |candidate: &str| turn.ahead.as_deref() == Some(candidate);
        match change {
            Change::Free => is_first,
            Change::Gone(candidate) => is_ahead(candidate),
            Change::Term { leader, chosen } => {
                is_first || is_ahead(leader) || turn.is_chosen || chosen == turn.candidate
            }
        }
    }
}

/// All that wait in this process.
#[derive(Default)]
pub(super) struct Waiters(Mutex<All>);

#[derive(Default)]
struct All {
    last: u64,
    elections: HashMap<String, HashMap<u64, Waiter>>,
    hears: bool,
}

struct Waiter {
    waits: Waits,
    wake: Arc<Notify>,
}

impl Waiters {
    /// Adds a waiter, which looks first.
    pub(super) fn add(self: &Arc<Self>, election: String) -> Waiting {
        let mut all = lock(&self.0);
        all.last += 1;
        let (number, wake) = (all.last, Arc::new(Notify::new()));
        let waiter = Waiter {
            waits: Waits::All,
            wake: Arc::clone(&wake),
        };
        let waiters = all.elections.entry(election.clone()).or_default();
        waiters.insert(number, waiter);
        Waiting {
            of: Arc::clone(self),
            election,
            number,
            wake,
        }
    }

    /// Wakes those that something heard concerns. Returns how many.
    pub(super) fn tell(&self, heard: Heard<'_>) -> usize {
        let mut all = lock(&self.0);
        match heard {
            Heard::Nothing => {
                all.hears = false;
                0
            }
            // What was announced before was not heard.
            Heard::All => {
                all.hears = true;
                wake(all.elections.values().flat_map(HashMap::values))
            }
            Heard::Said(payload) => {
                let Some((election, change)) = read(payload) else {
                    return 0;
                };
                let waiters = all.elections.get(election).into_iter();
                let waiters = waiters.flat_map(HashMap::values);
                wake(waiters.filter(|waiter| waiter.waits.is_woken_by(change)))
            }
        }
    }

    /// Returns whether announcements are heard.
    pub(super) fn hears(&self) -> bool {
        lock(&self.0).hears
    }
}

fn wake<'a>(waiters: impl Iterator<Item = &'a Waiter>) -> usize {
    waiters.inspect(|waiter| waiter.wake.notify_one()).count()
}

/// One that waits, until it is dropped.
pub(super) struct Waiting {
    of: Arc<Waiters>,
    election: String,
    number: u64,
    wake: Arc<Notify>,
}

impl Waiting {
    /// Sets what wakes it from now on.
    pub(super) fn waits(&self, waits: Waits) {
        let mut all = lock(&self.of.0);
        let waiters = all.elections.get_mut(&self.election);
        if let Some(waiter) = waiters.and_then(|waiters| waiters.get_mut(&self.number)) {
            waiter.waits = waits;
        }
    }

    /// Waits until it is woken. Returns at once if that was so since the last call.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut all = lock(&self.of.0);
        if let Some(waiters) = all.elections.get_mut(&self.election) {
            waiters.remove(&self.number);
            if waiters.is_empty() {
                all.elections.remove(&self.election);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn turn(candidate: u32, ahead: Option<u32>) -> Waits {
        Waits::Turn(Turn {
            candidate: candidate.to_string(),
            ahead: ahead.map(|ahead| ahead.to_string()),
            is_chosen: false,
        })
    }

    /// Fifty candidates in their order, and one that watches.
    fn fifty(waiters: &Arc<Waiters>) -> Vec<Waiting> {
        let candidates = (0..50).map(|at: u32| turn(at, at.checked_sub(1)));
        let all = candidates.chain([Waits::Terms]).map(|waits| {
            let waiting = waiters.add("e".to_owned());
            waiting.waits(waits);
            waiting
        });
        all.collect()
    }

    fn woken(all: &[Waiting]) -> Vec<usize> {
        let woken = all.iter().enumerate();
        let woken = woken.filter(|(_, one)| one.woken().now_or_never().is_some());
        woken.map(|(at, _)| at).collect()
    }

    #[test]
    fn one_candidate_is_woken_for_each_change() {
        const WATCHER: usize = 50;
        let waiters = Arc::new(Waiters::default());
        let all = fifty(&waiters);
        let changes: [(&str, &[usize]); 11] = [
            ("e/free", &[0, WATCHER]),
            ("e/gone/0", &[1]),
            ("e/gone/30", &[31]),
            ("e/gone/49", &[]),
            ("e/term/x/", &[0, WATCHER]),
            ("e/term/0/", &[0, 1, WATCHER]),
            ("e/term/x/7", &[0, 7, WATCHER]),
            ("other/free", &[]),
            ("e", &[]),
            ("e/term/x", &[]),
            ("e/what/0", &[]),
        ];
        for (payload, expected) in changes {
            let count = waiters.tell(Heard::Said(payload));
            assert_eq!(woken(&all), expected, "{payload}");
            assert_eq!(count, expected.len(), "{payload}");
        }
        assert_eq!(waiters.tell(Heard::All), 51, "what was said before?");
        drop(all);
        assert!(lock(&waiters.0).elections.is_empty());
    }

    #[test]
    fn one_behind_a_chosen_one_is_woken_when_the_choice_changes() {
        let behind = Waits::Turn(Turn {
            candidate: "a".to_owned(),
            ahead: Some("c".to_owned()),
            is_chosen: true,
        });
        let (leader, chosen) = ("x", "");
        assert!(behind.is_woken_by(Change::Term { leader, chosen }));
        assert!(!behind.is_woken_by(Change::Free));
    }

    #[test]
    fn a_change_during_a_look_is_not_missed() {
        let waiters = Arc::new(Waiters::default());
        let waiting = waiters.add("e".to_owned());
        waiting.waits(turn(1, Some(0)));
        waiters.tell(Heard::Said("e/gone/5"));
        assert!(waiting.woken().now_or_never().is_none());
        waiting.waits(Waits::All);
        waiters.tell(Heard::Said("e/gone/5"));
        waiting.waits(turn(1, Some(0)));
        assert!(waiting.woken().now_or_never().is_some());
    }
}
