//! One direction of one connection.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until};

use super::direction::Direction;
use super::link::{Link, Reset, Step};

/// The most bytes that one direction holds.
const ROOM: usize = 64 * 1024;

/// The most bytes that are read at once.
const CHUNK: usize = 16 * 1024;

/// How a direction has ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// All bytes and the end of them have passed.
    Closed,
    /// The receiver takes no more bytes.
    Gone,
}

enum Item {
    Bytes(Bytes),
    Fin,
    Reset,
}

/// Reads, holds and writes the bytes of one direction.
pub(super) struct Pump<'a> {
    direction: Direction,
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    link: &'a Link,
    /// Whether the other pump failed to write to the end that this one reads from. The other pump
    /// sets it; both run in one task.
    is_gone: &'a AtomicBool,
    /// The items that were read, with their times. Only the last item is not `Bytes`.
    held: VecDeque<(Instant, Item)>,
    held_bytes: usize,
    has_ended: bool,
}

impl<'a> Pump<'a> {
    pub(super) fn new(
        direction: Direction,
        from: ReadHalf<'a>,
        to: WriteHalf<'a>,
        link: &'a Link,
        is_gone: &'a AtomicBool,
    ) -> Self {
        Self {
            direction,
            from,
            to,
            link,
            is_gone,
            held: VecDeque::new(),
            held_bytes: 0,
            has_ended: false,
        }
    }

    pub(super) async fn run(mut self) -> Result<Ending, Reset> {
        let mut watch = self.link.watch();
        let mut chunk = vec![0; CHUNK];
        loop {
            // Marked as seen before the step: a later change wakes this task up.
            let is_cut = {
                let faults = watch.borrow_and_update();
                if self.link.is_reset(&faults) {
                    return Err(Reset);
                }
                self.link.is_cut(&faults, self.direction)
            };

            let (mut wakes_at, mut is_blocked) = (None, false);
            if let Some((read_at, item)) = self.held.front_mut() {
                let bytes = match item {
                    Item::Bytes(bytes) => &bytes[..],
                    Item::Fin | Item::Reset => &[],
                };
                let write = |bytes: &[u8]| self.to.try_write(bytes);
                match (
                    self.link.pass(self.direction, *read_at, bytes, write)?,
                    item,
                ) {
                    (Step::Passed(len), Item::Bytes(bytes)) => {
                        bytes.advance(len);
                        self.held_bytes -= len;
                        if bytes.is_empty() {
                            self.held.pop_front();
                        }
                        continue;
                    }
                    (Step::Passed(_), Item::Fin) => {
                        let shut = self.to.shutdown().await;
                        return Ok(shut.map_or(Ending::Gone, |()| Ending::Closed));
                    }
                    (Step::Passed(_), Item::Reset) => return Err(Reset),
                    (Step::Gone, _) => {
                        self.is_gone.store(true, Ordering::Relaxed);
                        return Ok(Ending::Gone);
                    }
                    (Step::Blocked, _) => is_blocked = true,
                    (Step::Wait(until), _) => wakes_at = until,
                }
            }

            // Bytes behind a cut stay with their sender.
            let reads = !is_cut && !self.has_ended && self.held_bytes < ROOM;
            tokio::select! {
                biased; // a cut comes before bytes that were sent after it
                changed = watch.changed() => changed.expect("the link holds a sender"),
                _ = self.from.readable(), if reads => self.read(&mut chunk),
                _ = self.to.writable(), if is_blocked => {}
                () = sleep_until(wakes_at.unwrap_or_else(Instant::now)), if wakes_at.is_some() => {}
            }
        }
    }

    fn read(&mut self, chunk: &mut [u8]) {
        let room = CHUNK.min(ROOM - self.held_bytes);
        let item = match self.from.try_read(&mut chunk[..room]) {
            Ok(0) if self.is_gone.load(Ordering::Relaxed) => Item::Reset,
            Ok(0) => Item::Fin,
            Ok(len) => {
                self.held_bytes += len;
                Item::Bytes(Bytes::copy_from_slice(&chunk[..len]))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => Item::Reset,
        };
        self.has_ended = !matches!(item, Item::Bytes(_));
        self.held.push_back((Instant::now(), item));
    }
}
