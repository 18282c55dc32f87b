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
