//! A stripe of an intake: messages that wait to be placed, and whose turn it is to place them.

use std::collections::VecDeque;

use keylane_rt::{Mutex, OwnLine, lock};

/// Capacity, in messages, that is never given back.
const MOST_KEPT: usize = 1_024;

/// What the caller must do, so that the messages of a stripe are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "messages would wait for a turn that never comes"]
pub enum Call {
    /// Nothing.
    None,
    /// Put an entry of this stripe into the ready queue.
    Enter,
    /// See that a runner comes: an entry is in the ready queue already.
    Recruit,
}

/// Messages that wait to be placed.
///
/// Senders put them in. The one that has the turn takes some and places them before it gives the
/// turn back, so two turns of a stripe cannot pass each other. `B` is what the turn is taken with:
/// it is in the stripe, or with the one whose turn it is.
#[derive(Debug)]
pub struct Stripe<T, B>(OwnLine<Mutex<Inner<T, B>>>);

#[derive(Debug)]
struct Inner<T, B> {
    messages: VecDeque<T>,
    /// `None`: the turn is taken.
    bench: Option<B>,
    /// The turn is free, and a runner or the router was called to take it.
    is_called: bool,
    /// An entry is in the ready queue. It may be there without a call, if the router was faster.
    is_entered: bool,
    closed: bool,
}

impl<T, B> Inner<T, B> {
    #[inline]
    fn call(&mut self) -> Call {
        self.is_called = true;
        match std::mem::replace(&mut self.is_entered, true) {
            true => Call::Recruit,
            false => Call::Enter,
        }
    }
}

impl<T, B> Stripe<T, B> {
    /// Returns an empty stripe.
    pub fn new(bench: B) -> Self {
        Self(OwnLine(Mutex::new(Inner {
            messages: VecDeque::new(),
            bench: Some(bench),
            is_called: false,
            is_entered: false,
            closed: false,
        })))
    }

    /// Puts a message in, or gives it back once the stripe is closed.
    #[inline]
    pub fn push(&self, message: T) -> Result<Call, T> {
        let mut inner = lock(&self.0);
        if inner.closed {
            return Err(message);
        }
        inner.messages.push_back(message);
        // With the turn, who gives it back calls the next one.
        if inner.is_called || inner.bench.is_none() {
            return Ok(Call::None);
        }
        Ok(inner.call())
    }

    /// Takes the turn, and up to `most` messages into the batch of the bench. `None`: there are
    /// none, or the turn is taken. `by_entry`: the entry has been taken out of the ready queue.
    #[inline]
    pub fn take_turn(
        &self,
        by_entry: bool,
        most: usize,
        batch: impl FnOnce(&mut B) -> &mut Vec<T>,
    ) -> Option<B> {
        let mut inner = lock(&self.0);
        if by_entry {
            inner.is_entered = false;
        }
        if inner.messages.is_empty() {
            return None;
        }
        let mut bench = inner.bench.take()?;
        inner.is_called = false;
        let count = inner.messages.len().min(most);
        batch(&mut bench).extend(inner.messages.drain(..count));
        Some(bench)
    }

    /// Takes the turn and no messages, to place others of the same keys. `None`: it is taken.
    pub fn take_empty_turn(&self) -> Option<B> {
        let mut inner = lock(&self.0);
        let bench = inner.bench.take()?;
        inner.is_called = false;
        Some(bench)
    }

    /// Gives the turn back, once what was taken with it has been placed.
    #[inline]
    pub fn give_back(&self, bench: B) -> Call {
        let mut inner = lock(&self.0);
        inner.bench = Some(bench);
        if !inner.messages.is_empty() {
            return inner.call();
        }
        let room = inner.messages.capacity();
        if room > MOST_KEPT {
            inner.messages.shrink_to(room / 2);
        }
        Call::None
    }

    /// Refuses messages from now on.
    pub fn close(&self) {
        lock(&self.0).closed = true;
    }

    /// Returns whether no message waits to be placed, or is being placed.
    pub fn is_idle(&self) -> bool {
        let inner = lock(&self.0);
        inner.messages.is_empty() && inner.bench.is_some()
    }

    /// Returns whether messages wait and the turn is free.
    pub fn is_called(&self) -> bool {
        lock(&self.0).is_called
    }

    /// Returns whether an entry of this stripe is in the ready queue.
    pub fn is_entered(&self) -> bool {
        lock(&self.0).is_entered
    }
}
