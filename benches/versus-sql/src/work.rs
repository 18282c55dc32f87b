//! What the handlers do, and what they see of the order.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::message::{Message, Traffic};

/// Parts of a measurement whose ends are noted.
const PARTS: u64 = 10;

/// The work of one measurement, shared by all of its handlers.
#[derive(Clone, Debug)]
pub struct Work(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pause: Option<Duration>,
    messages: u64,
    keys: Vec<Key>,
    ended: AtomicU64,
    breaks: AtomicU64,
    is_cut: AtomicBool,
    is_done: Notify,
    parts: Mutex<Vec<Instant>>,
    starts: Option<Mutex<Vec<(Message, Instant)>>>,
}

#[derive(Debug, Default)]
struct Key {
    next: AtomicU32,
    is_busy: AtomicBool,
}

impl Work {
    /// Handlers that pause for so long.
    pub fn new(traffic: Traffic, pause: Option<Duration>) -> Self {
        Self::with(traffic, pause, None)
    }

    /// Handlers that note when they began.
    pub fn noting_starts(traffic: Traffic) -> Self {
        Self::with(traffic, None, Some(Mutex::default()))
    }

    fn with(
        traffic: Traffic,
        pause: Option<Duration>,
        starts: Option<Mutex<Vec<(Message, Instant)>>>,
    ) -> Self {
        Self(Arc::new(Shared {
            pause,
            messages: traffic.messages,
            keys: (0..traffic.keys).map(|_| Key::default()).collect(),
            ended: AtomicU64::new(0),
            breaks: AtomicU64::new(0),
            is_cut: AtomicBool::new(false),
            is_done: Notify::new(),
            parts: Mutex::default(),
            starts,
        }))
    }

    /// The handler of all queues.
    pub async fn handle(&self, message: Message) {
        let shared = &*self.0;
        if shared.is_cut.load(Ordering::Relaxed) {
            return;
        }
        if let Some(starts) = &shared.starts {
            let began = Instant::now();
            let mut starts = starts.lock().unwrap_or_else(PoisonError::into_inner);
            starts.push((message, began));
        }
        let key = &shared.keys[message.key as usize];
        let overlaps = key.is_busy.swap(true, Ordering::AcqRel);
        let expected = key.next.swap(message.number + 1, Ordering::AcqRel);
        if overlaps || expected != message.number {
            shared.breaks.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(pause) = shared.pause {
            tokio::time::sleep(pause).await;
        }
        key.is_busy.store(false, Ordering::Release);
        if shared.is_cut.load(Ordering::Relaxed) {
            return;
        }
        let ended = shared.ended.fetch_add(1, Ordering::AcqRel) + 1;
        if ended.is_multiple_of((shared.messages / PARTS).max(1)) {
            let mut parts = shared.parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts.push(Instant::now());
        }
        if ended == shared.messages {
            shared.is_done.notify_one();
        }
    }

    /// Returns when the last handler has ended, to one caller.
    pub async fn done(&self) {
        self.0.is_done.notified().await;
    }

    /// What begins from now on does nothing, and does not count.
    pub fn cut(&self) {
        self.0.is_cut.store(true, Ordering::Relaxed);
    }

    /// Handlers that have ended.
    pub fn ended(&self) -> u64 {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Messages that were handled out of their order, again, or beside another one of their key.
    pub fn breaks(&self) -> u64 {
        self.0.breaks.load(Ordering::Acquire)
    }

    /// When each tenth of the messages was done.
    pub fn parts(&self) -> Vec<Instant> {
        let parts = self.0.parts.lock();
        parts.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When the handlers began.
    pub fn starts(&self) -> Vec<(Message, Instant)> {
        let starts = self.0.starts.as_ref();
        starts.map_or_else(Vec::new, |starts| {
            starts
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn broken_order_is_seen() {
        let traffic = Traffic {
            messages: 4,
            keys: 2,
        };
        let work = Work::new(traffic, None);
        let message = |key, number| Message { key, number };
        work.handle(message(0, 0)).await;
        work.handle(message(1, 1)).await;
        assert_eq!(work.breaks(), 1, "the first one is missing");
        work.handle(message(0, 1)).await;
        work.handle(message(0, 1)).await;
        assert_eq!(work.breaks(), 2, "a repeat");
        work.done().await;
        assert_eq!(work.ended(), 4);
    }

    #[tokio::test]
    async fn overlaps_are_seen() {
        let traffic = Traffic {
            messages: 2,
            keys: 1,
        };
        let work = Work::new(traffic, Some(Duration::from_millis(20)));
        let message = |number| Message { key: 0, number };
        tokio::join!(work.handle(message(0)), work.handle(message(1)));
        assert_eq!(work.breaks(), 1);
    }
}
