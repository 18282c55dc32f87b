//! The four ways to give each path's events to handlers, in order and one at a time.
//!
//! | | order | what it costs |
//! | --- | --- | --- |
//! | [`single`] | kept | the throughput of one handler |
//! | [`per_key`] | kept | a task and a queue for every path ever seen |
//! | [`static_`] | kept | paths that share a worker wait for each other, and one full worker stops all |
//! | [`dynamic`] | kept | none of these |
//!
//! All get the same limits, so that they can be compared.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::event::Event;

pub(crate) mod dynamic;
pub(crate) mod per_key;
pub(crate) mod single;
pub(crate) mod static_;

/// A design that is running.
pub(crate) trait Design {
    /// Gives the event to a handler, now or later. Waits while the design is full.
    async fn send(&mut self, event: Event) -> Result<(), DesignError>;

    /// Returns when every event sent has been handled.
    async fn finish(self) -> Result<(), DesignError>;
}

/// What a design may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most handlers in flight.
    pub(crate) concurrency: usize,
    /// Most events sent and not yet handled.
    pub(crate) capacity: usize,
}

/// A design, by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Single,
    PerKey,
    Static(NonZeroU32),
    Dynamic,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name.split_once(':') {
            None if name == "single" => Ok(Self::Single),
            None if name == "per-key" => Ok(Self::PerKey),
            None if name == "dynamic" => Ok(Self::Dynamic),
            Some(("static", workers)) => match workers.parse() {
                Ok(workers) if workers <= MAX_WORKERS => Ok(Self::Static(workers)),
                _ => Err(format!(
                    "static:N takes a number of workers from 1 to {MAX_WORKERS}"
                )),
            },
            _ => Err("expected single, per-key, static:N or dynamic".to_owned()),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single => f.write_str("single"),
            Self::PerKey => f.write_str("per-key"),
            Self::Static(workers) => write!(f, "static:{workers}"),
            Self::Dynamic => f.write_str("dynamic"),
        }
    }
}

/// Why a design cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DesignError {
    #[error("a worker is gone")]
    WorkerGone,
    #[error("a worker panicked")]
    Panicked(#[from] tokio::task::JoinError),
    #[error("the dispatcher cannot be built")]
    NotBuilt(#[from] keylane::error::BuildError),
    #[error("only {handled} of {sent} events were handled")]
    Unhandled { handled: u64, sent: u64 },
}

const MAX_WORKERS: NonZeroU32 = NonZeroU32::new(1 << 20).expect("it is not zero");
