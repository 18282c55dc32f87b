//! Faults of the reference server that a test orders.

use std::time::Duration;

use keylane::source::RawMessage;
use tokio::time::Instant;

use super::call::{Call, Loss};
use super::plan::{Plan, Storm};
use super::server::ReferenceServer;
use crate::scenario::Random;

/// Orders faults: see [`ReferenceServer::faults`].
#[derive(Clone, Debug)]
pub struct Faults {
    server: ReferenceServer,
}

impl ReferenceServer {
    /// Returns a handle to order faults.
    pub fn faults(&self) -> Faults {
        Faults {
            server: self.clone(),
        }
    }
}

impl Faults {
    /// Loses the next `times` settlements. A silent loss makes the next `confirm` fail, unless that
    /// is lost as well.
    pub fn lose_settles(&self, times: usize, loss: Loss) {
        self.server.plan(|plan| plan.lost_settles = (times, loss));
    }

    /// Makes the next `times` calls of `confirm` do nothing.
    pub fn lose_confirms(&self, times: usize, loss: Loss) {
        self.server.plan(|plan| plan.lost_confirms = (times, loss));
    }

    /// Cuts the connection before the next `times` settlements: they do not arrive, and the session
    /// is over.
    pub fn cut_before_ack(&self, times: usize) {
        self.server.plan(|plan| plan.cuts = times);
    }

    /// Makes the next hand-over contain so many messages more than it has room for.
    pub fn hand_over_beyond_room(&self, messages: usize) {
        self.server.plan(|plan| plan.beyond_room = messages);
    }

    /// Hands the next `messages` over twice, under one position.
    pub fn hand_over_twice(&self, messages: usize) {
        self.server.plan(|plan| plan.twice = messages);
    }

    /// Makes the next `times` calls of this kind panic. The panic hook is not called.
    pub fn panic_in(&self, call: Call, times: usize) {
        self.server.plan(|plan| plan.panics.insert(call, times));
    }

    /// Makes the next `times` calls of this kind return an error, and do nothing.
    pub fn fail(&self, call: Call, times: usize) {
        self.server.plan(|plan| plan.errors.insert(call, times));
    }

    /// Makes each call take this time first.
    pub fn be_slow(&self, delay: Duration) {
        self.server.plan(|plan| plan.delay = delay);
    }

    /// Refuses the next `times` dead letters.
    pub fn refuse_letters(&self, times: usize) {
        self.server.plan(|plan| plan.refused_letters = times);
    }

    /// Refuses the next `times` starts of attempts.
    pub fn refuse_starts(&self, times: usize) {
        self.server.plan(|plan| plan.refused_starts = times);
    }

    /// Notes an attempt only after so many requests for it.
    pub fn note_starts_after(&self, asks: u32) {
        self.server.plan(|plan| plan.asks_until_noted = asks);
    }

    /// Hands each message over two to five times: again at random moments within this time after
    /// the first delivery, before or after its ack.
    pub fn storm(&self, seed: u64, within: Duration) {
        let random = Random::new(seed);
        self.server
            .plan(|plan| plan.storm = Some(Storm { random, within }));
    }

    /// Makes settlements of deliveries that are over count, from now on.
    pub fn accept_stale(&self) {
        self.server.plan(|plan| plan.accepts_stale = true);
    }

    /// Makes the source report that this part of it fails.
    pub fn fail_part(&self, part: &str, why: &str) {
        let news = (part.to_owned(), Some(why.to_owned()));
        self.server.change(|state| state.plan.parts.push(news));
    }

    /// Makes the source report that this part of it works again.
    pub fn recover_part(&self, part: &str) {
        let news = (part.to_owned(), None);
        self.server.change(|state| state.plan.parts.push(news));
    }

    /// Hands the chosen messages over once more, whatever their state.
    pub fn redeliver(&self, chosen: impl Fn(&RawMessage) -> bool) {
        self.server
            .change(|state| state.redeliver(Instant::now(), chosen));
    }

    /// Loses the chosen messages: they are never handed over again, and no handler runs for them.
    pub fn forget(&self, chosen: impl Fn(&RawMessage) -> bool) {
        self.server.change(|state| state.forget(chosen));
    }

    /// Cancels all earlier orders.
    pub fn none(&self) {
        self.server.plan(|plan| *plan = Plan::default());
    }
}
