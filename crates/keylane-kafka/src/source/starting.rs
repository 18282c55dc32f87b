//! Partitions that the group has assigned, and whose start is not known yet.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use crate::control::Overtaken;
use crate::link::{Answered, Answers, Found};

/// The partitions that are not read yet. A partition that waits does not hold up the others.
pub(super) struct Starting {
    pub(super) all: Vec<Waiting>,
    pub(super) answers: Answers,
    pub(super) answered: UnboundedReceiver<Answered>,
}

pub(super) struct Waiting {
    pub(super) topic: Arc<str>,
    pub(super) number: i32,
    pub(super) overtaken: Option<Overtaken>,
    /// When to ask again. `None`: a request is in progress.
    pub(super) again: Option<(Instant, Found)>,
}

impl Starting {
    pub(super) fn new(wake: &Arc<Notify>) -> Self {
        let (to, answered) = unbounded_channel();
        Self {
            all: Vec::new(),
            answers: Answers {
                to,
                wake: Arc::clone(wake),
            },
            answered,
        }
    }

    /// Forgets these partitions, which the group has taken or got back.
    pub(super) fn forget(&mut self, places: &[(String, i32)]) {
        let is_it = |one: &Waiting, (topic, number): &(String, i32)| {
            **topic == *one.topic && *number == one.number
        };
        self.all
            .retain(|one| !places.iter().any(|place| is_it(one, place)));
    }

    /// When the next of them is to be asked for again.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let times = self.all.iter().filter_map(|one| one.again.as_ref());
        times.map(|(at, _)| *at).min()
    }

    /// Takes the partitions that are to be asked for again now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Found> {
        let is_due = |again: &mut (Instant, Found)| again.0 <= now;
        let due = self.all.iter_mut();
        let due = due.filter_map(|one| one.again.take_if(is_due));
        due.map(|(_, found)| found).collect()
    }

    /// Returns the partition that an answer is about. `None`: it has left meanwhile.
    pub(super) fn place_of(&self, found: &Found) -> Option<usize> {
        if !found.ownership.lasts() {
            return None;
        }
        let is_it = |one: &Waiting| one.topic == found.topic && one.number == found.number;
        self.all.iter().position(is_it)
    }
}
