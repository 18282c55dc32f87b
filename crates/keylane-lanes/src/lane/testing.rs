//! Messages, gates and rules for the tests of lanes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use keylane_rt::clock::{self, Instant};

use super::Lane;
use super::effects::{Effects, Rare};
use crate::gate::Gate;
use crate::item::Item;
use crate::rules::{AtLimit, PlanRules, Rules};

/// A message that is nothing but what lanes ask of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) id: u32,
    /// The first message that has become a part of this one.
    pub(super) since: Option<u32>,
    pub(super) version: u64,
    pub(super) not_before: Option<Instant>,
    pub(super) expires_at: Option<u64>,
    /// The messages that were merged into it, the oldest first.
    pub(super) merged: Vec<u32>,
    pub(super) members: Vec<Message>,
}

impl Message {
    pub(super) fn new(id: u32) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }
}

impl Item for Message {
    type Body = u32;

    fn accepted_at(&self) -> u64 {
        u64::from(self.since.unwrap_or(self.id))
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn class(&self) -> u8 {
        0
    }

    fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    fn expires_at(&self) -> Option<u64> {
        self.expires_at
    }

    fn merged_len(&self) -> usize {
        self.merged.len()
    }

    fn absorb_older(&mut self, older: Self) -> u32 {
        let mut merged = older.merged;
        merged.push(older.id);
        merged.append(&mut self.merged);
        self.merged = merged;
        older.id
    }

    fn absorb_newer(&mut self, newer: Self) -> u32 {
        self.merged.push(newer.id);
        self.merged.extend(newer.merged);
        newer.id
    }

    fn inherit_merged(&mut self, older: &mut Self) {
        self.merged = std::mem::take(&mut older.merged);
    }

    fn set_members(&mut self, members: Vec<Self>) {
        self.members = members;
    }
}

/// A gate that counts the permits that are left.
#[derive(Clone, Debug)]
pub(super) struct TestGate(pub(super) Rc<Cell<usize>>);

impl Gate for TestGate {
    fn with_permits(permits: usize) -> Self {
        Self(Rc::new(Cell::new(permits)))
    }

    fn available(&self) -> usize {
        self.0.get()
    }
}

/// A lane of such messages.
pub(super) type TestLane = Lane<Message, Message, TestGate>;

pub(super) type TestEffects = Effects<Message, Message, TestGate>;

/// What a decision wrote. What few decisions have is there to be looked at, if nothing else.
pub(super) fn effects(decide: impl FnOnce(&mut TestEffects)) -> TestEffects {
    let mut effects = Effects::new();
    decide(&mut effects);
    let _ = effects.rare_mut();
    effects
}

/// What few decisions have.
pub(super) fn rare(effects: &TestEffects) -> &Rare<Message, Message> {
    effects.rare.as_deref().expect("`effects` has made it")
}

/// Rules with nothing but a plan: room for four messages, of which the senders of more are held
/// back.
pub(super) fn rules(plan: PlanRules) -> Rules {
    Rules {
        capacity: 4,
        at_limit: AtLimit::Park,
        plan,
        rate: None,
        expires: false,
        // Long ago, so that no time of a test is before it.
        epoch: clock::now()
            .checked_sub(Duration::from_secs(1))
            .unwrap_or_else(clock::now),
    }
}
