//! Why a command has stopped.

/// In words for the person who started it.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
