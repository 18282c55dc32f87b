//! Which messages are sent, and when.

use std::ops::Range;
use std::time::Duration;

use crate::keys::Keys;
use crate::message::Tick;
use crate::probe;

/// The messages of all producers.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Which key comes when.
    pub keys: Keys,
    /// Tasks that send.
    pub producers: u64,
    /// Messages of each.
    pub share: u64,
    /// Added to every key.
    pub shift: u64,
}

impl Stream {
    /// The i-th message of this producer.
    #[inline]
    pub fn tick(&self, i: u64, producer: u64) -> Tick {
        let key = self.keys.key(i, producer, self.share) + self.shift;
        let slot = self.keys.slot(key, producer, self.producers);
        Tick {
            key,
            due: 0,
            slot,
            seq: i as u32 + 1,
        }
    }

    /// Order slots needed.
    pub fn slots(&self) -> usize {
        let shifted = (self.shift * self.producers) as usize;
        self.keys.slots(self.share * self.producers, self.producers) + shifted
    }

    /// Different keys at most.
    pub fn count(&self) -> u64 {
        self.keys.count(self.share * self.producers) + self.shift
    }
}

/// What one producer has to send.
#[derive(Clone, Debug)]
pub struct Errand {
    /// All messages of all producers.
    pub stream: Stream,
    /// Which producer.
    pub producer: u64,
    /// Which of its messages.
    pub range: Range<u64>,
    /// When, unless as fast as it may.
    pub pace: Option<Pace>,
    /// Whether it goes on until the measurement is over, and no longer.
    pub endless: bool,
}

/// When each message of an open loop is due.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// When the first one is, in nanoseconds of the probe's clock.
    pub began: u64,
    /// Nanoseconds between two.
    pub period: u64,
    /// Whether latency counts from then, and not from when it is really sent.
    pub intended: bool,
}

impl Errand {
    /// The i-th message, at its time.
    #[inline]
    pub fn tick(&self, i: u64) -> Tick {
        let mut tick = self.stream.tick(i, self.producer);
        if let Some(pace) = self.pace {
            tick.due = pace.wait(i);
        }
        tick
    }
}

impl Pace {
    /// Blocks until the message is due, and says from when its latency counts: an open loop has a
    /// thread of its own.
    fn wait(self, i: u64) -> u64 {
        let due = self.began + i * self.period;
        loop {
            let now = probe::now_ns();
            match due.checked_sub(now).filter(|ns| *ns > 0) {
                Some(early) => std::thread::sleep(Duration::from_nanos(early)),
                None if self.intended => return due,
                None => return now,
            }
        }
    }
}
