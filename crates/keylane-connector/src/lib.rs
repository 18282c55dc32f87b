#![doc = include_str!("../README.md")]

mod changes;
pub use changes::Changes;

mod outbox;
pub use outbox::Outbox;

mod notes;
pub use notes::Notes;

mod failed;
pub use failed::FailedAttempts;

mod parts;
pub use parts::{PartFailure, Parts};

mod hazards;
pub use hazards::Hazard;

mod repeats;
pub use repeats::Repeats;

mod error;
pub use error::{ConfigError, ErrorKind};

pub mod tls;

mod letter;
pub use letter::Why;

mod system;
pub use system::{End, Entry, Handed, Memory, Reply, Rest, System};

mod source;
pub use source::WorkerSource;

mod position;
pub use position::WorkerPosition;

mod task;

mod session;

mod starts;

mod lock;
pub use lock::lock;

#[cfg(test)]
mod simulation;

/// What the code of macros names.
#[doc(hidden)]
pub mod __private {
    pub use std::sync::Arc;

    pub use keylane_source::{
        BoxError, DeadLetter, DeadLetterSink, Deliveries, Describer, Features, RawLetter,
        RawLetterSink, RawMessage, Received, Settlement, Source, SourceError, SourceLetter,
        StartGuard, async_trait,
    };
}
