//! The outputs that wait until the consumer takes them.

use std::collections::VecDeque;

/// What an adapter does with outputs.
pub(super) trait Outputs {
    type Output;

    /// Adds one more element that was pulled. The first has the index 0, the next one 1.
    fn push_pending(&mut self);

    /// Takes the output of an element.
    fn complete(&mut self, index: u64, output: Self::Output);

    /// Skips an element, which will have no output.
    fn skip(&mut self, index: u64);

    /// Takes the next output.
    fn take(&mut self) -> Option<Self::Output>;

    /// Returns how many outputs can be taken now.
    fn ready(&self) -> usize;

    /// Returns how many outputs are kept.
    fn len(&self) -> usize;

    /// Returns how many count against the capacity: outputs, and skipped elements behind one that
    /// is pending.
    fn held(&self) -> usize {
        self.len()
    }

    /// Returns the first index that must not start any more if the output at `index` is the last
    /// one.
    fn stop_from(&self, index: u64) -> u64;

    /// Ends the outputs at `index`, which is the last one.
    fn end_at(&mut self, index: u64);
}

/// Outputs in the order of the elements.
pub(super) struct InOrder<A> {
    /// The first one is never [`OutputSlot::Skipped`]: it is pending, or can be taken.
    slots: VecDeque<OutputSlot<A>>,
    /// The index of the first slot.
    first: u64,
    /// How many slots, from the first on, are not pending.
    run: usize,
    /// How many of these are outputs.
    ready: usize,
    len: usize,
    skipped: usize,
}

enum OutputSlot<A> {
    Pending,
    Output(A),
    Skipped,
}

impl<A> InOrder<A> {
    pub(super) fn new() -> Self {
        Self {
            slots: VecDeque::new(),
            first: 0,
            run: 0,
            ready: 0,
            len: 0,
            skipped: 0,
        }
    }

    fn set(&mut self, index: u64, slot: OutputSlot<A>) {
        let at = usize::try_from(index - self.first);
        let at = at.expect("slots fit into memory");
        self.slots[at] = slot;
        self.advance_run();
    }

    fn advance_run(&mut self) {
        while let Some(slot) = self.slots.get(self.run) {
            match slot {
                OutputSlot::Pending => return,
                OutputSlot::Output(_) => self.ready += 1,
                OutputSlot::Skipped => {}
            }
            self.run += 1;
        }
    }

    /// Removes skipped slots in front, which are never taken.
    fn trim(&mut self) {
        while let Some(OutputSlot::Skipped) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
            self.run -= 1;
            self.skipped -= 1;
        }
    }
}

impl<A> Outputs for InOrder<A> {
    type Output = A;

    fn push_pending(&mut self) {
        self.slots.push_back(OutputSlot::Pending);
    }

    fn complete(&mut self, index: u64, output: A) {
        self.len += 1;
        self.set(index, OutputSlot::Output(output));
    }

    fn skip(&mut self, index: u64) {
        self.skipped += 1;
        self.set(index, OutputSlot::Skipped);
        self.trim();
    }

    fn take(&mut self) -> Option<A> {
        let first = self
            .slots
            .pop_front_if(|slot| matches!(slot, OutputSlot::Output(_)));
        let Some(OutputSlot::Output(output)) = first else {
            return None;
        };
        self.first += 1;
        self.run -= 1;
        self.ready -= 1;
        self.len -= 1;
        self.trim();
        Some(output)
    }

    fn ready(&self) -> usize {
        self.ready
    }

    fn len(&self) -> usize {
        self.len
    }

    fn held(&self) -> usize {
        self.len + self.skipped
    }

    fn stop_from(&self, index: u64) -> u64 {
        index
    }

    fn end_at(&mut self, index: u64) {
        let keep = usize::try_from(index - self.first).map_or(usize::MAX, |at| at + 1);
        let keep = keep.min(self.slots.len());
        let after = self.slots.split_off(keep);
        let here = |slot: &&OutputSlot<A>| matches!(slot, OutputSlot::Output(_));
        self.len = self.slots.iter().filter(here).count();
        let skipped = |slot: &&OutputSlot<A>| matches!(slot, OutputSlot::Skipped);
        self.skipped = self.slots.iter().filter(skipped).count();
        (self.run, self.ready) = (0, 0);
        self.advance_run();
        // Last, because the user's `Drop` may panic.
        drop(after);
    }
}

/// Outputs in the order in which the futures finish.
pub(super) struct Unordered<A>(VecDeque<A>);

impl<A> Unordered<A> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }
}

impl<A> Outputs for Unordered<A> {
    type Output = A;

    fn push_pending(&mut self) {}

    fn complete(&mut self, _: u64, output: A) {
        self.0.push_back(output);
    }

    fn skip(&mut self, _: u64) {}

    fn take(&mut self) -> Option<A> {
        self.0.pop_front()
    }

    fn ready(&self) -> usize {
        self.0.len()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn stop_from(&self, _: u64) -> u64 {
        0
    }

    fn end_at(&mut self, _: u64) {}
}

/// Keeps only the first error.
pub(super) struct FirstError<E>(Option<E>);

impl<E> FirstError<E> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    pub(super) fn take_error(&mut self) -> Option<E> {
        self.0.take()
    }
}

impl<E> Outputs for FirstError<E> {
    type Output = Result<(), E>;

    fn push_pending(&mut self) {}

    fn complete(&mut self, _: u64, output: Self::Output) {
        if let Err(error) = output
            && self.0.is_none()
        {
            self.0 = Some(error);
        }
    }

    fn skip(&mut self, _: u64) {}

    fn take(&mut self) -> Option<Self::Output> {
        None
    }

    fn ready(&self) -> usize {
        0
    }

    fn len(&self) -> usize {
        0
    }

    fn stop_from(&self, _: u64) -> u64 {
        0
    }

    fn end_at(&mut self, _: u64) {}
}

/// Keeps nothing.
pub(super) struct Discard;

impl Outputs for Discard {
    type Output = ();

    fn push_pending(&mut self) {}

    fn complete(&mut self, _: u64, (): ()) {}

    fn skip(&mut self, _: u64) {}

    fn take(&mut self) -> Option<()> {
        None
    }

    fn ready(&self) -> usize {
        0
    }

    fn len(&self) -> usize {
        0
    }

    fn stop_from(&self, _: u64) -> u64 {
        0
    }

    fn end_at(&mut self, _: u64) {}
}
