//! The queue of a partition in one assignment.
//!
//! The client has one queue per partition, over all assignments. A queue that is read after the end
//! of its assignment takes the records of the next one, and these are lost. So the queue is shut
//! before the group goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaResult;

use super::offset::offset;
use keylane_connector::lock;

/// How long a seek in the log may take.
pub(super) const SEEK_WITHIN: Duration = Duration::from_secs(10);

pub(crate) struct ClosableQueue<C: ConsumerContext> {
    /// Locked while it is read and while it seeks. `None`: it is shut.
    queue: Mutex<Option<PartitionQueue<C>>>,
    /// The queue must be shut.
    shuts: AtomicBool,
}

impl<C: ConsumerContext> ClosableQueue<C> {
    pub(super) fn new(queue: PartitionQueue<C>) -> Self {
        Self {
            queue: Mutex::new(Some(queue)),
            shuts: AtomicBool::new(false),
        }
    }

    /// Locks the queue, so that it stays open or shut.
    pub(super) fn hold(&self) -> MutexGuard<'_, Option<PartitionQueue<C>>> {
        lock(&self.queue)
    }

    /// Whether it is shut or about to be: nothing more may be taken out of it.
    pub(super) fn shuts(&self) -> bool {
        self.shuts.load(Ordering::Acquire)
    }

    /// Moves the queue to the record at this offset, unless it is shut. Blocks the thread.
    pub(super) fn seek(
        &self,
        consumer: &BaseConsumer<C>,
        topic: &str,
        number: i32,
        at: u64,
    ) -> KafkaResult<()> {
        // If it is shut, the seek would move the queue of the next assignment.
        match &*self.hold() {
            Some(_) => consumer.seek(topic, number, offset(at), SEEK_WITHIN),
            None => Ok(()),
        }
    }

    /// Shuts the queue, or lets the thread that holds it do so. Returns whether it is shut.
    pub(super) fn shut(&self) -> bool {
        self.shuts.store(true, Ordering::Release);
        let queue = match self.queue.try_lock() {
            Ok(mut queue) => queue.take(),
            Err(TryLockError::Poisoned(queue)) => PoisonError::into_inner(queue).take(),
            Err(TryLockError::WouldBlock) => return false,
        };
        // Drops it without the lock: the last queue ends the consumer, which shuts its queues.
        drop(queue);
        true
    }
}
