//! What the engine shares with the drivers of sources.
//!
//! A message of a source carries one word, its [`SourceSlot`]. When it settles, the word and the
//! outcome go into the outbox of its driver, which knows the position behind the slot. The other
//! way round a driver marks slots as revoked: their messages do not start any more.
//!
//! One lock guards all of it, held for a push or a swap. A runner wakes the drivers when it flushes
//! its tally, so a driver that is behind gets its settlements in batches. A driver that could take
//! next to nothing in anyway asks for a batch of some size, and comes by itself after a while.
//!
//! The log says where a message is, and only its driver knows. So lines about messages of sources
//! go through the outbox as well (`lines.rs`).

mod asked;
pub(crate) use asked::{Asked, Front, OriginsRequest};

mod lines;

mod origins;

mod revoked;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use keylane_rt::atomic::{AtomicBool, Ordering};
use keylane_rt::unwind::shielded;
use keylane_rt::{Mutex, lock, oneshot};
use keylane_source::{LetterCause, Outcome, StartLater};

use crate::observe::message_line::MessageLine;

/// Is told of attempts before they start, by slot, where a source counts them.
pub(crate) trait SlotGuard: Send + Sync {
    /// Called before the n-th attempt starts. After an error it does not start.
    fn starts(&self, slot: u32, attempt: u32) -> Result<(), StartLater>;

    /// Called when the message has settled.
    fn settles(&self, slot: u32, outcome: Outcome);
}

/// Names a message to the driver of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceSlot {
    pub(crate) source: u32,
    pub(crate) slot: u32,
}

impl SourceSlot {
    /// The word for no slot: there are not so many sources.
    const NONE: u64 = u64::MAX;

    /// Returns it as one word.
    #[inline]
    pub(crate) fn pack(slot: Option<Self>) -> u64 {
        slot.map_or(Self::NONE, |Self { source, slot }| {
            u64::from(source) << 32 | u64::from(slot)
        })
    }

    pub(crate) fn unpack(word: u64) -> Option<Self> {
        (word != Self::NONE).then_some(Self {
            source: (word >> 32) as u32,
            slot: word as u32,
        })
    }
}

/// The outboxes of all drivers of a dispatcher.
#[derive(Default)]
pub(crate) struct Sources {
    /// By the number of the source. Numbers are not used again: a message of a driver that is gone
    /// must not settle one of another driver.
    outboxes: Mutex<Vec<Option<Box<Outbox>>>>,
    /// Whether as many settlements were pushed as a driver waits for, and it was not woken. Set and
    /// cleared under the lock; a runner that reads it relaxed sees at least its own pushes.
    unread: AtomicBool,
    /// Whether any source was ever consumed. Relaxed, without a partner: the first message of a
    /// source comes after it was set.
    used: AtomicBool,
    /// Whether any driver has a question to answer.
    asked: AtomicBool,
    /// Whether the messages of a lane become one by the user's function.
    merges: bool,
}

/// What one driver has to read, and what it has said about its slots.
#[derive(Default)]
struct Outbox {
    /// The name of the source.
    name: Arc<str>,
    news: News,
    asked: Asked,
    waker: Option<Waker>,
    /// How many settlements the driver waits for.
    least: usize,
    guard: Option<Arc<dyn SlotGuard>>,
    /// What is known of slots beyond the ordinary. Slots behind its end are ordinary.
    marks: Vec<Mark>,
}

/// What a driver reads.
#[derive(Default)]
pub(crate) struct News {
    pub(crate) settled: Vec<(u32, Outcome)>,
    pub(crate) letters: Vec<LetterRequest>,
    /// Lines about messages, which come before those settle.
    pub(crate) lines: Vec<(u32, MessageLine)>,
    /// Whether there is a letter or a line: the driver waits for no batch of settlements.
    is_urgent: bool,
}

/// A dead letter that the source is to keep itself.
pub(crate) struct LetterRequest {
    pub(crate) slot: u32,
    pub(crate) attempts: u32,
    pub(crate) cause: LetterCause,
    pub(crate) why: String,
    /// Whether it is durable now.
    pub(crate) done: oneshot::Sender<Result<(), NotKept>>,
}

/// Why a source does not have a dead letter.
pub(crate) enum NotKept {
    /// It is on its way.
    Pending,
    /// The source has failed to keep it.
    Failed(String),
}

/// What few slots have.
#[derive(Default)]
struct Mark {
    revoked: Revoked,
    /// Attempts before the message was handed over.
    attempts: u32,
    /// Whether its source keeps a dead letter of it.
    has_letter: bool,
    /// Wakes the attempt in flight.
    attempt: Option<Waker>,
}

impl Mark {
    /// What the source is told of this outcome. One that was not started again was tried as often
    /// as before it was handed over; one whose letter the source keeps is dead-lettered, whatever
    /// has become of it since: it would come again beside its letter.
    fn told(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Returned { .. } if self.has_letter => Outcome::DeadLettered,
            Outcome::Returned { attempts } => Outcome::Returned {
                attempts: attempts.max(self.attempts),
            },
            other => other,
        }
    }
}

/// How far a message has been taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Revoked {
    #[default]
    No,
    /// It must not start. An attempt in flight may finish.
    Unstarted,
    /// An attempt in flight ends now.
    InFlight,
}

/// Which slots of one source are revoked, at one moment.
pub(crate) struct RevokedSlots {
    source: u32,
    slots: Vec<bool>,
}

impl RevokedSlots {
    pub(crate) fn contains(&self, slot: SourceSlot) -> bool {
        slot.source == self.source && self.slots.get(slot.slot as usize) == Some(&true)
    }
}

/// A driver's number, which is taken away when this is dropped. What settles afterwards is told to
/// no source.
pub(crate) struct Registration {
    sources: Arc<Sources>,
    pub(crate) source: u32,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let outbox = lock(&self.sources.outboxes)[self.source as usize].take();
        if let Some(outbox) = &outbox {
            // Its driver is gone, and has not written these.
            let lines = outbox.news.lines.iter();
            for (_, line) in lines.filter(|(_, line)| line.what.says_more_than_where()) {
                // The subscriber is the user's.
                shielded(|| line.write(None));
            }
        }
        // The guard and the wakers are the user's.
        shielded(|| drop(outbox));
    }
}

impl Sources {
    pub(super) fn new(merges: bool) -> Self {
        Self {
            merges,
            ..Self::default()
        }
    }

    /// Makes the outbox of the driver of the source with this name. Returns `None` when all 2^32
    /// numbers have been used.
    pub(crate) fn register(
        self: &Arc<Self>,
        name: &str,
        guard: Option<Arc<dyn SlotGuard>>,
    ) -> Option<Registration> {
        let mut outboxes = lock(&self.outboxes);
        let source = u32::try_from(outboxes.len()).ok()?;
        outboxes.push(Some(Box::new(Outbox {
            name: name.into(),
            guard,
            ..Outbox::default()
        })));
        drop(outboxes);
        Some(Registration {
            sources: Arc::clone(self),
            source,
        })
    }

    /// A message has settled. Its driver is woken by [`wake`](Self::wake).
    #[inline]
    pub(super) fn settled(&self, at: SourceSlot, outcome: Outcome) {
        let mut outboxes = lock(&self.outboxes);
        let Some(outbox) = &mut outboxes[at.source as usize] else {
            return;
        };
        if outbox.guard.is_some() {
            let guard = outbox.guard.clone();
            let mark = outbox.marks.get(at.slot as usize);
            let outcome = mark.map_or(outcome, |mark| mark.told(outcome));
            drop(outboxes);
            return self.settled_guarded(at, outcome, guard);
        }
        outbox.news.settled.push((at.slot, outcome));
        if outbox.has_news() {
            self.unread.store(true, Ordering::Relaxed);
        }
    }

    /// Tells the guard first: the next attempt of the key may start at once.
    #[cold]
    fn settled_guarded(&self, at: SourceSlot, outcome: Outcome, guard: Option<Arc<dyn SlotGuard>>) {
        if let Some(guard) = guard {
            shielded(|| guard.settles(at.slot, outcome));
        }
        if let Some(outbox) = &mut lock(&self.outboxes)[at.source as usize] {
            outbox.news.settled.push((at.slot, outcome));
            if outbox.has_news() {
                self.unread.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Wakes the drivers that have something to read. True: one of them was waiting.
    #[inline]
    pub(super) fn wake(&self) -> bool {
        self.unread.load(Ordering::Relaxed) && self.wake_drivers()
    }

    #[cold]
    fn wake_drivers(&self) -> bool {
        let mut outboxes = lock(&self.outboxes);
        self.unread.store(false, Ordering::Relaxed);
        let mut others = Vec::new();
        let mut first = None;
        let unread = outboxes
            .iter_mut()
            .flatten()
            .filter(|outbox| outbox.has_news());
        for waker in unread.filter_map(|outbox| outbox.waker.take()) {
            match first {
                None => first = Some(waker),
                Some(_) => others.push(waker),
            }
        }
        drop(outboxes);
        let woke = first.is_some();
        for waker in first.into_iter().chain(others) {
            waker.wake();
        }
        woke
    }

    /// Waits until there is something to read, and takes it: at least so many settlements, a letter
    /// or a line. `news` must be empty; it is swapped, so that neither side allocates.
    pub(crate) fn poll_news(
        &self,
        source: u32,
        least: usize,
        news: &mut News,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut outboxes = lock(&self.outboxes);
        let Some(outbox) = &mut outboxes[source as usize] else {
            return Poll::Pending;
        };
        outbox.least = least.max(1);
        if outbox.has_news() {
            std::mem::swap(&mut outbox.news, news);
            outbox.news.is_urgent = false;
            return Poll::Ready(());
        }
        match &mut outbox.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Asks a source to keep a dead letter. `None`: its driver is gone.
    pub(super) fn dead_letter(
        &self,
        at: SourceSlot,
        attempts: u32,
        cause: LetterCause,
        why: String,
    ) -> Option<oneshot::Receiver<Result<(), NotKept>>> {
        let mut outboxes = lock(&self.outboxes);
        let outbox = outboxes[at.source as usize].as_mut()?;
        let (done, answer) = oneshot::channel();
        outbox.news.letters.push(LetterRequest {
            slot: at.slot,
            attempts,
            cause,
            why,
            done,
        });
        outbox.news.is_urgent = true;
        let waker = outbox.waker.take();
        drop(outboxes);
        if let Some(waker) = waker {
            waker.wake();
        }
        Some(answer)
    }

    /// Sets how often a message was tried before it was handed over.
    pub(crate) fn set_attempts(&self, at: SourceSlot, attempts: u32) {
        self.with_mark(at, true, |mark| mark.attempts = attempts);
    }

    /// The source keeps a dead letter of a message.
    pub(crate) fn set_letter(&self, at: SourceSlot) {
        self.with_mark(at, true, |mark| mark.has_letter = true);
    }

    pub(crate) fn has_letter(&self, at: SourceSlot) -> bool {
        let mut has_letter = false;
        self.with_mark(at, false, |mark| has_letter = mark.has_letter);
        has_letter
    }

    /// Clears what was known of a slot whose message has settled. Returns what its source is told.
    pub(crate) fn clear_slot(&self, at: SourceSlot, outcome: Outcome) -> Outcome {
        let mut old = Mark::default();
        self.with_mark(at, false, |mark| old = std::mem::take(mark));
        old.told(outcome)
    }

    /// Takes messages back. Attempts in flight that are to end are woken.
    pub(crate) fn revoke(&self, source: u32, slots: &[u32], how: Revoked) {
        let mut wakers = Vec::new();
        // All under one lock: of two messages of one key, the second must not start because the
        // first is taken back and the second not yet.
        let mut outboxes = lock(&self.outboxes);
        if let Some(outbox) = &mut outboxes[source as usize] {
            for &slot in slots {
                let mark = outbox.mark(slot);
                mark.revoked = mark.revoked.max(how);
                if how == Revoked::InFlight {
                    wakers.extend(mark.attempt.take());
                }
            }
        }
        drop(outboxes);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How far a message has been taken back. Its driver may be gone: then it has not.
    pub(super) fn revoked(&self, at: SourceSlot) -> Revoked {
        let outboxes = lock(&self.outboxes);
        let outbox = outboxes[at.source as usize].as_ref();
        let mark = outbox.and_then(|outbox| outbox.marks.get(at.slot as usize));
        mark.map_or(Revoked::No, |mark| mark.revoked)
    }

    /// All revoked slots of a source.
    pub(super) fn revoked_slots(&self, source: u32) -> RevokedSlots {
        let outboxes = lock(&self.outboxes);
        let marks = outboxes[source as usize]
            .iter()
            .flat_map(|outbox| &outbox.marks);
        RevokedSlots {
            source,
            slots: marks.map(|mark| mark.revoked > Revoked::No).collect(),
        }
    }

    /// An attempt is in flight and waits: wakes it when it is to end. True: it is to end now.
    pub(super) fn watch_attempt(&self, at: SourceSlot, waker: &Waker) -> bool {
        let mut ends = false;
        self.with_mark(at, true, |mark| {
            ends = mark.revoked == Revoked::InFlight;
            match &mut mark.attempt {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        });
        ends
    }

    /// Attempts that were made before the message was handed over, and what has to know of the next
    /// one before it starts.
    pub(crate) fn before_start(&self, at: SourceSlot) -> (u32, Option<Arc<dyn SlotGuard>>) {
        let outboxes = lock(&self.outboxes);
        let Some(outbox) = &outboxes[at.source as usize] else {
            return (0, None);
        };
        let mark = outbox.marks.get(at.slot as usize);
        (mark.map_or(0, |mark| mark.attempts), outbox.guard.clone())
    }

    fn with_mark(&self, at: SourceSlot, make: bool, change: impl FnOnce(&mut Mark)) {
        let mut outboxes = lock(&self.outboxes);
        let Some(outbox) = &mut outboxes[at.source as usize] else {
            return;
        };
        if make {
            change(outbox.mark(at.slot));
        } else if let Some(mark) = outbox.marks.get_mut(at.slot as usize) {
            change(mark);
        }
    }
}

impl Outbox {
    fn mark(&mut self, slot: u32) -> &mut Mark {
        let index = slot as usize;
        if self.marks.len() <= index {
            self.marks.resize_with(index + 1, Mark::default);
        }
        &mut self.marks[index]
    }

    fn has_news(&self) -> bool {
        self.news.settled.len() >= self.least || self.news.is_urgent || !self.asked.is_empty()
    }
}
