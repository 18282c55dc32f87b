//! Finding polls that block their thread.
//!
//! A poll that does not return cannot report itself. So each thread leaves a mark while it polls
//! a handler, and the watchdog looks whether the same mark is still there after `stuck_after`.
//! Marking costs a few relaxed stores to the thread's own cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use keylane_rt::clock::Instant;

use super::progress::Blocked;

/// The mark of one thread.
#[derive(Debug, Default)]
struct ThreadMark {
    /// Which poll of this thread it is; 0 while no handler is polled. Stored with release after
    /// the other fields. Partner: the acquire load in `StuckPolls::look`, which then sees them
    /// as of this poll or of a later one. So a poll that returns while it is being reported may be
    /// reported with the key of the next one.
    poll: AtomicU64,
    /// Relaxed: published by `poll`.
    engine: AtomicUsize,
    /// Relaxed: published by `poll`.
    hash: AtomicU64,
    /// Names the message to its engine. Relaxed: published by `poll`.
    message: AtomicU64,
}

/// All threads that ever polled a handler and still live.
static MARKS: Mutex<Vec<Weak<ThreadMark>>> = Mutex::new(Vec::new());

thread_local! {
    /// This thread's mark, and how many polls it has counted.
    static MINE: (OnceLock<Arc<ThreadMark>>, Cell<u64>) =
        const { (OnceLock::new(), Cell::new(0)) };
}

fn marks() -> std::sync::MutexGuard<'static, Vec<Weak<ThreadMark>>> {
    MARKS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A handler is being polled on this thread, until this is dropped.
#[derive(Debug)]
pub(crate) struct PollMark;

impl PollMark {
    #[inline]
    pub(crate) fn start(engine: usize, hash: u64, message: u64) -> Self {
        // A thread that is ending has no mark any more; its last polls are not watched.
        let _ = MINE.try_with(|(mark, polls)| {
            let mark = mark.get_or_init(|| {
                let mark = Arc::<ThreadMark>::default();
                let mut marks = marks();
                marks.retain(|mark| mark.strong_count() > 0);
                marks.push(Arc::downgrade(&mark));
                mark
            });
            polls.set(polls.get() + 1);
            mark.engine.store(engine, Ordering::Relaxed);
            mark.hash.store(hash, Ordering::Relaxed);
            mark.message.store(message, Ordering::Relaxed);
            // Partner: `StuckPolls::look`.
            mark.poll.store(polls.get(), Ordering::Release);
        });
        Self
    }
}

impl Drop for PollMark {
    #[inline]
    fn drop(&mut self) {
        let _ = MINE.try_with(|(mark, _)| {
            if let Some(mark) = mark.get() {
                // Partner: `StuckPolls::look`.
                mark.poll.store(0, Ordering::Release);
            }
        });
    }
}

/// Whether this thread polls the handler of this engine for a key with this hash. A message without
/// a key has the hash 0, and waits for no handler.
pub(crate) fn is_polled(engine: usize, hash: u64) -> bool {
    let is_polled = MINE.try_with(|(mark, _)| {
        mark.get().is_some_and(|mark| {
            // Relaxed: this thread has written all of it.
            mark.poll.load(Ordering::Relaxed) != 0
                && mark.engine.load(Ordering::Relaxed) == engine
                && mark.hash.load(Ordering::Relaxed) == hash
        })
    });
    hash != 0 && is_polled.unwrap_or(false)
}

/// A poll that has not returned.
#[derive(Debug)]
pub(crate) struct StuckPoll {
    pub(crate) hash: u64,
    /// Names its message to the engine.
    pub(crate) message: u64,
    pub(crate) lasted: Duration,
    mark: Arc<ThreadMark>,
    poll: u64,
}

impl StuckPoll {
    /// Whether it has not returned yet. Its message is in its handler until then.
    pub(crate) fn still_lasts(&self) -> bool {
        // Relaxed: this thread has seen the poll begin.
        self.mark.poll.load(Ordering::Relaxed) == self.poll
    }
}

/// Finds polls that last, by what it saw on each thread the last time.
#[derive(Debug, Default)]
pub(crate) struct StuckPolls {
    seen: Vec<SeenPoll>,
}

#[derive(Debug)]
struct SeenPoll {
    mark: Weak<ThreadMark>,
    poll: u64,
    since: Instant,
    reported: bool,
}

impl StuckPolls {
    /// Returns the polls of this engine that have now lasted for `limit`, each once.
    pub(crate) fn look(&mut self, engine: usize, now: Instant, limit: Duration) -> Vec<StuckPoll> {
        let polling: Vec<_> = marks()
            .iter()
            .filter_map(Weak::upgrade)
            // Partner: the stores in `PollMark`.
            .filter_map(|mark| match mark.poll.load(Ordering::Acquire) {
                0 => None,
                _ if mark.engine.load(Ordering::Relaxed) != engine => None,
                poll => Some((mark, poll)),
            })
            .collect();
        self.seen.retain(|seen| {
            polling
                .iter()
                .any(|(mark, poll)| seen.is(mark) && seen.poll == *poll)
        });
        let mut stuck = Vec::new();
        for (mark, poll) in polling {
            match self.seen.iter_mut().find(|seen| seen.is(&mark)) {
                None => {
                    let mark = Arc::downgrade(&mark);
                    self.seen.push(SeenPoll {
                        mark,
                        poll,
                        since: now,
                        reported: false,
                    });
                }
                Some(seen) => {
                    let lasted = now.saturating_duration_since(seen.since);
                    if lasted >= limit && !seen.reported {
                        seen.reported = true;
                        stuck.push(StuckPoll {
                            hash: mark.hash.load(Ordering::Relaxed),
                            message: mark.message.load(Ordering::Relaxed),
                            lasted,
                            mark,
                            poll,
                        });
                    }
                }
            }
        }
        stuck
    }
}

impl StuckPolls {
    /// Returns the polls that had lasted for `limit` when it looked last: how many, and since when
    /// the first of them.
    pub(crate) fn blocked(&self) -> Option<Blocked> {
        let blocked = self.seen.iter().filter(|seen| seen.reported);
        let since = blocked.clone().map(|seen| seen.since).min()?;
        let handlers = blocked.count();
        Some(Blocked { handlers, since })
    }
}

impl SeenPoll {
    fn is(&self, mark: &Arc<ThreadMark>) -> bool {
        std::ptr::eq(self.mark.as_ptr(), Arc::as_ptr(mark))
    }
}

/// Whether a task that should tick regularly has ceased to. A pure count: asked once in each period
/// of the task.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    /// How often it was asked since the last tick.
    asked: u32,
}

impl Lateness {
    /// Questions without a tick after which the task is late. The first may come just before a
    /// tick, and the second just after the next one was due.
    const LATE: u32 = 3;

    /// The task has ticked.
    pub(crate) fn ticked(&mut self) {
        self.asked = 0;
    }

    pub(crate) fn is_late(&mut self) -> bool {
        self.asked = self.asked.saturating_add(1);
        self.asked >= Self::LATE
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_ticks_is_not_late() {
        let mut task = Lateness::default();
        for _ in 0..5 {
            assert!(!task.is_late() && !task.is_late());
            task.ticked();
        }
        let is_late: Vec<bool> = (0..4).map(|_| task.is_late()).collect();
        assert_eq!(is_late, [false, false, true, true]);
    }

    const LIMIT: Duration = Duration::from_secs(1);

    #[test]
    fn a_poll_that_lasts_is_reported_once() {
        let mut polls = StuckPolls::default();
        let start = keylane_rt::clock::now();
        let mark = PollMark::start(1, 42, 7);
        assert!(polls.look(1, start, LIMIT).is_empty());
        let others = polls.look(2, start + LIMIT, LIMIT);
        assert!(others.is_empty(), "another engine's poll");
        assert!(polls.look(1, start, LIMIT).is_empty());
        let [stuck] = &polls.look(1, start + LIMIT, LIMIT)[..] else {
            panic!("one is stuck");
        };
        assert_eq!((stuck.hash, stuck.message, stuck.lasted), (42, 7, LIMIT));
        assert!(polls.look(1, start + 2 * LIMIT, LIMIT).is_empty());
        assert!(stuck.still_lasts());
        drop(mark);
        assert!(!stuck.still_lasts());
        let _next = PollMark::start(1, 42, 8);
        assert!(!stuck.still_lasts());
        assert!(polls.look(1, start + 3 * LIMIT, LIMIT).is_empty());
    }

    #[test]
    fn many_short_polls_are_not_one_long_one() {
        let mut polls = StuckPolls::default();
        let start = keylane_rt::clock::now();
        for second in 0..5 {
            let _mark = PollMark::start(3, 42, 7);
            assert!(polls.look(3, start + second * LIMIT, LIMIT).is_empty());
        }
    }
}
