//! What is sent.

use tokio::sync::oneshot;

/// The message of nearly every measurement: 24 bytes.
#[derive(Clone, Debug)]
pub struct Tick {
    /// What orders it.
    pub key: u64,
    /// When it should have been sent, in nanoseconds; 0 where the latency is not measured.
    pub due: u64,
    /// Where its order is checked.
    pub slot: u32,
    /// Its place among the messages of its slot, from 1.
    pub seq: u32,
}

/// A larger message: a [`Tick`], and as many bytes again.
#[derive(Clone, Debug)]
pub struct Parcel<const FILL: usize> {
    /// What orders it, and checks its order.
    pub tick: Tick,
    /// The rest.
    pub fill: [u8; FILL],
}

/// What makes it 256 bytes.
pub const FILL_256: usize = 256 - size_of::<Tick>();

/// What makes it 1 KiB.
pub const FILL_1024: usize = 1_024 - size_of::<Tick>();

impl<const FILL: usize> From<Tick> for Parcel<FILL> {
    #[inline]
    fn from(tick: Tick) -> Self {
        let fill = [tick.seq as u8; FILL];
        Self { tick, fill }
    }
}

/// A message that wants an answer.
#[derive(Debug)]
pub struct Ask {
    /// What orders it.
    pub key: u64,
    /// Where the answer goes; none for contenders that have an answer of their own.
    pub reply: Option<oneshot::Sender<()>>,
}

impl Clone for Ask {
    /// A copy of a question has no channel for an answer. Only contenders with an answer of their own
    /// ever copy one.
    fn clone(&self) -> Self {
        Self {
            key: self.key,
            reply: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_large_as_the_tables_say() {
        assert_eq!(size_of::<Tick>(), 24);
        assert_eq!(size_of::<Parcel<FILL_256>>(), 256);
        assert_eq!(size_of::<Parcel<FILL_1024>>(), 1_024);
    }
}
