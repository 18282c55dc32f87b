//! What every design runs for every message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::traffic::{Message, User};

/// What a handler computes, besides waiting.
const CPU: Duration = Duration::from_micros(50);

/// A message that has been started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started {
    pub(crate) due: Duration,
    /// From the time it was due to the start of its handler.
    pub(crate) wait: Duration,
}

/// The handler and what it writes down; shared by all tasks of a design.
#[derive(Debug)]
pub(crate) struct Handler {
    start: Instant,
    users: Vec<Mutex<Record>>,
    handled: AtomicU64,
    one_more: Notify,
}

/// What happened to one user's messages.
#[derive(Debug, Default)]
struct Record {
    started: Vec<Started>,
    running: bool,
    breaks: u64,
}

impl Handler {
    /// Time counts from now.
    pub(crate) fn new(users: u32) -> Self {
        Self {
            start: Instant::now(),
            users: (0..users).map(|_| Mutex::default()).collect(),
            handled: AtomicU64::new(0),
            one_more: Notify::new(),
        }
    }

    /// Counts messages, and does nothing else: of as many users as there may be.
    pub(crate) fn counting() -> Self {
        Self::new(0)
    }

    pub(crate) async fn handle(&self, message: Message) {
        if self.users.is_empty() {
            self.count();
            return;
        }
        self.record(message.user, |record| {
            // Any message that overtakes another of its user, or runs beside it, is found here.
            let in_order = record.started.len() == message.number && !record.running;
            record.breaks += u64::from(!in_order);
            record.running = true;
            record.started.push(Started {
                due: message.due,
                wait: self.start.elapsed().saturating_sub(message.due),
            });
        });
        compute();
        sleep(message.work).await;
        self.record(message.user, |record| record.running = false);
        self.count();
    }

    fn count(&self) {
        self.handled.fetch_add(1, Ordering::Relaxed);
        self.one_more.notify_one();
    }

    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    pub(crate) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// Returns after another message has been handled. One task may wait.
    pub(crate) async fn one_more(&self) {
        self.one_more.notified().await;
    }

    /// Messages that were started out of order, or beside another of their user.
    pub(crate) fn breaks(&self) -> u64 {
        let users = 1..=self.users.len() as User;
        users
            .map(|user| self.record(user, |record| record.breaks))
            .sum()
    }

    /// The messages of a user, as they were started.
    pub(crate) fn started(&self, user: User) -> Vec<Started> {
        self.record(user, |record| record.started.clone())
    }

    fn record<R>(&self, user: User, look: impl FnOnce(&mut Record) -> R) -> R {
        let record = &self.users[user as usize - 1];
        look(&mut record.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Keeps a core busy, and not Tokio's clock, which a test may stop.
fn compute() {
    let start = std::time::Instant::now();
    while start.elapsed() < CPU {
        std::hint::spin_loop();
    }
}
