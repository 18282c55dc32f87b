//! Reading ahead: a thread takes records out of the queues of the partitions and makes messages of
//! them, while the source hands over earlier ones.
//!
//! ```text
//!  client: queue of a partition ──► thread: message ──► ready ──► source: taken ──► deliveries
//!                                                       (swapped with what the source has emptied)
//! ```
//!
//! Taking a record out of the client costs as much as handing it over and handling it. Tasks that
//! wake each other run on one worker of Tokio, so only a thread makes use of another core.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use tokio::sync::Notify;

use super::closable::{ClosableQueue, SEEK_WITHIN};
use super::context::{Consumer, Context, Queue};
use super::offset::offset;
use crate::log::is_news;
use crate::record::Maker;
use keylane_connector::lock;

/// Most records that are ready, of all partitions together: as many as the source hands over while
/// the thread wakes up. The source may hold as many again, which it has taken already.
const RECORDS: usize = 4_096;

/// Fewest and most records of one partition that are ready.
const OF_ONE: (usize, usize) = (32, 1_024);

/// A partition with this many bytes ready is not read on.
const BYTES: usize = 256 * 1_024;

/// Records that become ready together.
const CHUNK: usize = 128;

/// How often the thread looks at the queues, in case the client has not reported records.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The next item of a partition.
pub(crate) enum Fetched<M> {
    /// The message of the record at this offset, and how many bytes the record has.
    Message(u64, M, usize),
    /// No message could be made of the next record.
    Failed(String),
    /// The next record cannot be read. The client tries again.
    Unread(String),
}

/// The thread, and the partitions that it reads. The thread ends when this is dropped.
pub(crate) struct Prefetcher<M> {
    shared: Arc<Shared<M>>,
    thread: Thread,
}

struct Shared<M> {
    /// Partitions that the thread has not seen yet.
    new: Mutex<Vec<Arc<Buffer<M>>>>,
    ends: AtomicBool,
    /// How often the thread has looked at all partitions.
    rounds: AtomicU64,
}

/// The source's side of one partition. The thread stops reading it when this is dropped.
pub(crate) struct Prefetched<M> {
    buffer: Arc<Buffer<M>>,
    taken: VecDeque<Fetched<M>>,
    thread: Thread,
}

struct Buffer<M> {
    /// `topic/number`, as in the ids of records.
    name: Box<str>,
    tap: Arc<ClosableQueue<Context>>,
    ready: Mutex<Ready<M>>,
}

/// The items that the thread has read and the source has not taken.
struct Ready<M> {
    fetched: VecDeque<Fetched<M>>,
    bytes: usize,
    /// The thread reads on when the source has taken these.
    waits: bool,
}

/// The result of a look at a partition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Some,
    None,
    Gone,
}

impl<M: Send + 'static> Prefetcher<M> {
    /// Starts the thread. It wakes the source when something is ready.
    pub(crate) fn start(maker: Maker<M>, wake: Arc<Notify>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            new: Mutex::default(),
            ends: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
        });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("keylane-kafka-prefetch".to_owned())
            .spawn(move || theirs.run(maker, &wake))?;
        Ok(Self {
            shared,
            thread: thread.thread().clone(),
        })
    }
}

impl<M> Prefetcher<M> {
    /// The thread, to be unparked when a queue has records.
    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }

    /// How often the thread has looked at all partitions. It does so several times a second, unless
    /// a function of the user does not return.
    pub(crate) fn rounds(&self) -> u64 {
        self.shared.rounds.load(Ordering::Relaxed)
    }

    /// Begins to read a partition.
    pub(crate) fn read(
        &self,
        tap: Arc<ClosableQueue<Context>>,
        topic: &str,
        number: i32,
    ) -> Prefetched<M> {
        let buffer = Arc::new(Buffer {
            name: format!("{topic}/{number}").into(),
            tap,
            ready: Mutex::new(Ready {
                fetched: VecDeque::new(),
                bytes: 0,
                waits: false,
            }),
        });
        lock(&self.shared.new).push(Arc::clone(&buffer));
        self.thread.unpark();
        Prefetched {
            buffer,
            taken: VecDeque::new(),
            thread: self.thread.clone(),
        }
    }
}

impl<M> Drop for Prefetcher<M> {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

impl<M> Shared<M> {
    fn run(&self, mut maker: Maker<M>, wake: &Notify) {
        let mut buffers: Vec<Arc<Buffer<M>>> = Vec::new();
        let mut chunk = VecDeque::with_capacity(CHUNK);
        while !self.ends.load(Ordering::Relaxed) {
            buffers.append(&mut lock(&self.new));
            let most = most_ready(buffers.len());
            let mut has_read = false;
            buffers.retain(|buffer| {
                let look = buffer.look(most, &mut maker, &mut chunk);
                if look == Look::Some {
                    has_read = true;
                    wake.notify_one();
                }
                look != Look::Gone
            });
            self.rounds.fetch_add(1, Ordering::Relaxed);
            if !has_read {
                thread::park_timeout(LOOK_EVERY);
            }
        }
    }
}

/// Returns the bytes of the payload, the key and the headers of a record.
pub(crate) fn size(record: &BorrowedMessage<'_>) -> usize {
    length(record.payload()) + length(record.key()) + headers(record)
}

fn length(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(0, <[u8]>::len)
}

/// Returns the length of the headers. (A header whose name is not UTF-8 counts as 0.)
fn headers(record: &BorrowedMessage<'_>) -> usize {
    let Some(headers) = record.headers() else {
        return 0;
    };
    let header = |place| catch_unwind(AssertUnwindSafe(|| headers.get(place)));
    (0..headers.count())
        .filter_map(|place| header(place).ok())
        .map(|header| header.key.len() + length(header.value))
        .sum()
}

/// Most records of one partition that are ready, with this many partitions.
fn most_ready(partitions: usize) -> usize {
    let (least, most) = OF_ONE;
    (RECORDS / partitions.max(1)).clamp(least, most)
}

/// Drops a value of the user, and catches its panic.
fn dropped<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(move || drop(value))).map_err(std::mem::forget);
}

/// Drops messages one by one: a second panic while the first one unwinds would abort the process.
fn dropped_each<M>(fetched: &mut VecDeque<Fetched<M>>) {
    fetched.drain(..).for_each(dropped);
}

impl<M> Drop for Buffer<M> {
    fn drop(&mut self) {
        dropped_each(&mut lock(&self.ready).fetched);
    }
}

impl<M> Buffer<M> {
    /// Reads more records of this partition if there are some and there is room for them.
    fn look(&self, most: usize, maker: &mut Maker<M>, chunk: &mut VecDeque<Fetched<M>>) -> Look {
        if self.tap.shuts() && self.tap.shut() {
            return Look::Gone;
        }
        let of_queue = self.tap.hold();
        let Some(queue) = &*of_queue else {
            return Look::Gone;
        };
        let room = {
            let mut ready = lock(&self.ready);
            ready.waits = ready.fetched.len() >= most || ready.bytes >= BYTES;
            match ready.waits {
                true => return Look::None,
                false => most - ready.fetched.len(),
            }
        };
        let bytes = self.read(queue, room.min(CHUNK), maker, chunk);
        if chunk.is_empty() {
            return Look::None;
        }
        let mut ready = lock(&self.ready);
        ready.fetched.append(chunk);
        ready.bytes += bytes;
        Look::Some
    }

    /// Reads at most this many records. Returns how many bytes they have.
    fn read(
        &self,
        queue: &Queue,
        most: usize,
        maker: &mut Maker<M>,
        into: &mut VecDeque<Fetched<M>>,
    ) -> usize {
        let mut bytes = 0;
        while into.len() < most && bytes < BYTES && !self.tap.shuts() {
            match queue.poll(Duration::ZERO) {
                None => break,
                Some(Ok(record)) => {
                    let size = size(&record);
                    bytes += size;
                    let offset = record.offset().max(0).unsigned_abs();
                    // The function is the user's.
                    let made = catch_unwind(AssertUnwindSafe(|| maker.make(&self.name, &record)));
                    into.push_back(match made {
                        Ok(message) => Fetched::Message(offset, message, size),
                        Err(panic) => {
                            let text = self.panicked(offset, &*panic);
                            // The panic's value is the user's too.
                            dropped(panic);
                            Fetched::Failed(text)
                        }
                    });
                }
                Some(Err(error)) => {
                    into.extend(self.failure(&error).map(Fetched::Unread));
                    break;
                }
            }
        }
        bytes
    }

    fn panicked(&self, offset: u64, panic: &(dyn Any + Send)) -> String {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no message");
        format!(
            "the function that makes a message panicked at {}@{offset}: {text}",
            self.name
        )
    }

    /// Returns the text for an error of the partition, if the error lasts.
    fn failure(&self, error: &KafkaError) -> Option<String> {
        use RDKafkaErrorCode as Code;
        let name = &*self.name;
        match error.rdkafka_error_code() {
            Some(
                Code::TopicAuthorizationFailed
                | Code::BadMessage
                | Code::BadCompression
                | Code::InvalidMessage
                | Code::NotImplemented,
            ) => Some(format!("it cannot be read: {error}")),
            code => {
                if let Some(left_out) = is_news(format!("{name} {code:?}")) {
                    tracing::warn!(
                        target: "keylane",
                        partition = name, %error, left_out,
                        "the partition cannot be read now, will retry"
                    );
                }
                None
            }
        }
    }
}

impl<M> Prefetched<M> {
    /// `topic/number`, as in the ids of records.
    pub(crate) fn name(&self) -> &str {
        &self.buffer.name
    }

    /// Returns the next item, if it is ready.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Fetched<M>> {
        if self.taken.is_empty() {
            self.take_ready();
        }
        self.taken.pop_front()
    }

    fn take_ready(&mut self) {
        let waits = {
            let mut ready = lock(&self.buffer.ready);
            std::mem::swap(&mut ready.fetched, &mut self.taken);
            ready.bytes = 0;
            std::mem::take(&mut ready.waits)
        };
        if waits {
            self.thread.unpark();
        }
    }

    /// Puts a message back: it comes next again.
    pub(crate) fn put_back(&mut self, offset: u64, message: M, size: usize) {
        self.taken
            .push_front(Fetched::Message(offset, message, size));
    }
}

impl<M> Prefetched<M> {
    /// Moves the partition to the record at this offset. Blocks the thread.
    pub(crate) fn seek(
        &mut self,
        consumer: &Consumer,
        topic: &str,
        number: i32,
        at: u64,
    ) -> KafkaResult<()> {
        // The thread reads nothing meanwhile, so all records from before the seek are dropped.
        let buffer = Arc::clone(&self.buffer);
        let of_queue = buffer.tap.hold();
        if of_queue.is_none() {
            // The partition is gone, and may have come back since.
            return Ok(());
        }
        consumer.seek(topic, number, offset(at), SEEK_WITHIN)?;
        dropped_each(&mut self.taken);
        self.take_ready();
        dropped_each(&mut self.taken);
        drop(of_queue);
        Ok(())
    }
}

impl<M> Drop for Prefetched<M> {
    fn drop(&mut self) {
        // If the thread is reading it, the thread lets go of it.
        self.buffer.tap.shut();
        dropped_each(&mut self.taken);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_partitions_have_less_ready_each() {
        assert_eq!(most_ready(0), 1_024);
        assert_eq!(most_ready(1), 1_024);
        assert_eq!(most_ready(8), 512);
        assert_eq!(most_ready(1_000), 32);
    }
}
