//! The part of a server in its ensemble.

/// What a server is to its ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It is the only server.
    Alone,
    /// The others follow it.
    Leader,
    /// It follows another one.
    Follower,
}
