//! The queue of a partition in one assignment.
//!
//! All queues of a partition are one queue in the client. So one that is read beyond its assignment
//! takes the records of the next one, and they are lost. It is shut before the group goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaResult;

use super::context::offset;
use super::session::{Consumer, Queue};
use crate::lock::lock;

/// How long a jump in the log may take.
pub(super) const SEEK_WITHIN: Duration = Duration::from_secs(10);

pub(crate) struct ClosableQueue {
    /// Locked while it is read, and while it jumps to another place in the log. `None`: it is shut.
    queue: Mutex<Option<Queue>>,
    /// It is to be shut.
    shuts: AtomicBool,
}

impl ClosableQueue {
    pub(super) fn new(queue: Queue) -> Self {
        Self {
            queue: Mutex::new(Some(queue)),
            shuts: AtomicBool::new(false),
        }
    }

    /// Keeps it open, or shut.
    pub(super) fn hold(&self) -> MutexGuard<'_, Option<Queue>> {
        lock(&self.queue)
    }

    /// Whether it is shut, or about to be: nothing more may be taken out of it.
    pub(super) fn shuts(&self) -> bool {
        self.shuts.load(Ordering::Acquire)
    }

    /// Has the record at this offset come next, unless it is shut. Blocks the thread.
    pub(super) fn seek(
        &self,
        consumer: &Consumer,
        topic: &str,
        number: i32,
        at: u64,
    ) -> KafkaResult<()> {
        // It would be the queue of the next assignment otherwise.
        match &*self.hold() {
            Some(_) => consumer.seek(topic, number, offset(at), SEEK_WITHIN),
            None => Ok(()),
        }
    }

    /// Shuts it, or has it shut by the thread that holds it. Whether it is shut.
    pub(super) fn shut(&self) -> bool {
        self.shuts.store(true, Ordering::Release);
        let queue = match self.queue.try_lock() {
            Ok(mut queue) => queue.take(),
            Err(TryLockError::Poisoned(queue)) => PoisonError::into_inner(queue).take(),
            Err(TryLockError::WouldBlock) => return false,
        };
        // Not under the lock: the last one ends the consumer, which shuts what it has.
        drop(queue);
        true
    }
}
