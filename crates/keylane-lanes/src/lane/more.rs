//! What most lanes do without.

use super::super::gate::Full;
use super::plan::{Plan, Sequencer};
use crate::Gcra;

/// What few lanes have: absent until one of them needs some of it.
#[derive(Debug)]
pub(super) struct More<T, G>(Option<Box<Extras<T, G>>>);

#[derive(Debug)]
struct Extras<T, G> {
    /// Nothing of this key starts until an operator resumes it.
    is_paused: bool,
    full: Option<Full<G>>,
    /// What was accepted up to then must leave this lane before its keys may move to another one.
    watermark: Option<u64>,
    rate: Rate,
    plan: Plan<T>,
}

/// What a key has used of its rate.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// The theoretical arrival time (GCRA), in nanoseconds; 0 before the first message.
    pub(super) tat: u64,
    /// What it was before the last message.
    tat_before: u64,
}

impl Rate {
    /// Asks whether a message may start now, and counts it if it may; otherwise, returns when.
    #[inline]
    pub(super) fn ask(&mut self, limiter: &Gcra, now: u64) -> Result<(), u64> {
        self.tat_before = self.tat;
        limiter.ask(&mut self.tat, now)
    }

    /// The last message comes back: it has used nothing.
    pub(super) fn give_back(&mut self) {
        self.tat = self.tat_before;
    }
}

impl<T, G> More<T, G> {
    #[inline]
    pub(super) const fn new() -> Self {
        Self(None)
    }

    #[inline]
    pub(super) fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    #[inline]
    pub(super) fn is_paused(&self) -> bool {
        self.0.as_ref().is_some_and(|extras| extras.is_paused)
    }

    pub(super) fn pause(&mut self) {
        self.extras_mut().is_paused = true;
    }

    /// Ends a pause. Returns whether there was one.
    pub(super) fn unpause(&mut self) -> bool {
        let extras = self.0.as_mut();
        extras.is_some_and(|extras| std::mem::take(&mut extras.is_paused))
    }

    #[inline]
    pub(super) fn watermark(&self) -> Option<u64> {
        self.0.as_ref()?.watermark
    }

    pub(super) fn set_watermark(&mut self, mark: Option<u64>) {
        self.extras_mut().watermark = mark;
    }

    /// Returns the word of the rate.
    #[inline]
    pub(super) fn tat(&self) -> u64 {
        self.0.as_ref().map_or(0, |extras| extras.rate.tat)
    }

    #[inline]
    pub(super) fn rate_mut(&mut self) -> &mut Rate {
        &mut self.extras_mut().rate
    }

    #[inline]
    pub(super) fn full(&self) -> Option<&Full<G>> {
        self.0.as_ref()?.full.as_ref()
    }

    #[inline]
    pub(super) fn full_mut(&mut self) -> Option<&mut Full<G>> {
        self.0.as_mut()?.full.as_mut()
    }

    pub(super) fn set_full(&mut self, full: Full<G>) {
        self.extras_mut().full = Some(full);
    }

    #[inline]
    pub(super) fn take_full(&mut self) -> Option<Full<G>> {
        self.0.as_mut()?.full.take()
    }

    #[inline]
    pub(super) fn plan(&self) -> Option<&Plan<T>> {
        Some(&self.0.as_ref()?.plan)
    }

    /// Returns what the plan keeps, if it keeps anything yet.
    #[inline]
    pub(super) fn plan_mut(&mut self) -> Option<&mut Plan<T>> {
        Some(&mut self.0.as_mut()?.plan)
    }

    /// Returns what the plan keeps, to keep something.
    #[inline]
    pub(super) fn make_plan(&mut self) -> &mut Plan<T> {
        &mut self.extras_mut().plan
    }

    /// Whether two messages of this lane are with the router, which makes one of them. Until that
    /// comes back the lane stays, and has not drained.
    #[inline]
    pub(super) fn is_merging(&self) -> bool {
        matches!(self.plan(), Some(Plan::Merging(_)))
    }

    #[inline]
    pub(super) fn sequencer(&self) -> Option<&Sequencer<T>> {
        self.plan()?.sequencer()
    }

    #[inline]
    pub(super) fn sequencer_mut(&mut self) -> Option<&mut Sequencer<T>> {
        self.plan_mut()?.sequencer_mut()
    }

    /// Drops it, once its lane is gone.
    #[inline]
    pub(super) fn forget(self) {
        if let Some(extras) = self.0 {
            forget(extras);
        }
    }

    #[inline]
    fn extras_mut(&mut self) -> &mut Extras<T, G> {
        self.0.get_or_insert_with(|| {
            Box::new(Extras {
                is_paused: false,
                full: None,
                watermark: None,
                rate: Rate::default(),
                plan: Plan::Stateless,
            })
        })
    }
}

/// Cold, so that plain lanes do not carry the code that drops what they do not have.
#[cold]
fn forget<T, G>(extras: Box<Extras<T, G>>) {
    drop(extras);
}
