//! Why something cannot work.

use std::fmt;
use std::time::Duration;

/// A reason why a dispatcher or a source cannot work. Its text says what to do.
///
/// Each of them ends the readiness. Those for which [`needs_restart`](Self::needs_restart) holds
/// end the liveness too.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthReason {
    /// A dispatcher takes no more messages, because it was drained, closed or aborted.
    #[non_exhaustive]
    Closed {
        /// The name of the dispatcher.
        dispatcher: Option<String>,
    },
    /// A panic outside the handlers has ended a dispatcher. It needs a restart.
    #[non_exhaustive]
    Panicked {
        /// The name of the dispatcher.
        dispatcher: Option<String>,
    },
    /// A dispatcher has no room, and nothing settles.
    #[non_exhaustive]
    Full {
        /// The name of the dispatcher.
        dispatcher: Option<String>,
        /// For how long.
        lasted: Duration,
    },
    /// Handlers block their threads. It needs a restart.
    #[non_exhaustive]
    Blocked {
        /// The name of the dispatcher.
        dispatcher: Option<String>,
        /// The number of handlers that block their threads.
        handlers: usize,
        /// For how long the first of them does.
        lasted: Duration,
    },
    /// A source was never open.
    #[non_exhaustive]
    SourceUnopened {
        /// The name of the source.
        source: String,
        /// The last error, if there is one.
        error: Option<String>,
    },
    /// A source fails, and is tried again.
    #[non_exhaustive]
    SourceFailing {
        /// The name of the source.
        source: String,
        /// For how long.
        lasted: Duration,
        /// The last error.
        error: Option<String>,
    },
    /// A source is not consumed any more: its intake stops, or has ended.
    #[non_exhaustive]
    SourceStopped {
        /// The name of the source.
        source: String,
    },
    /// A panic outside the handlers has ended the intake of a source. It needs a restart.
    #[non_exhaustive]
    SourcePanicked {
        /// The name of the source.
        source: String,
    },
}

impl HealthReason {
    /// Returns whether a restart of the process mends it, and nothing else does.
    pub fn needs_restart(&self) -> bool {
        match self {
            Self::Panicked { .. } | Self::Blocked { .. } | Self::SourcePanicked { .. } => true,
            Self::Closed { .. }
            | Self::Full { .. }
            | Self::SourceUnopened { .. }
            | Self::SourceFailing { .. }
            | Self::SourceStopped { .. } => false,
        }
    }
}

impl fmt::Display for HealthReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { dispatcher } => {
                let dispatcher = Named(dispatcher);
                write!(
                    f,
                    "{dispatcher} is closed: start another one to take messages"
                )
            }
            Self::Panicked { dispatcher } => {
                let dispatcher = Named(dispatcher);
                write!(
                    f,
                    "a panic outside the handlers ended {dispatcher}: restart the process, and look \
                     for the text of the panic in its output"
                )
            }
            Self::Full { dispatcher, lasted } => {
                let (dispatcher, lasted) = (Named(dispatcher), lasted.as_secs());
                write!(
                    f,
                    "{dispatcher} is full, and nothing has settled for {lasted} s: look at the \
                     hottest keys and at what their handlers wait for, or raise the capacity"
                )
            }
            Self::Blocked {
                dispatcher,
                handlers,
                lasted,
            } => {
                let (dispatcher, lasted) = (Named(dispatcher), lasted.as_secs());
                write!(
                    f,
                    "handlers of {dispatcher} block their threads ({handlers} now, one for {lasted} \
                     s): restart the process, and move blocking work to `spawn_blocking`"
                )
            }
            Self::SourceUnopened { source, error } => {
                let error = Why(error);
                write!(
                    f,
                    "source `{source}` was never open: wait, or look at its server{error}"
                )
            }
            Self::SourceFailing {
                source,
                lasted,
                error,
            } => {
                let (lasted, error) = (lasted.as_secs(), Why(error));
                write!(
                    f,
                    "source `{source}` has failed for {lasted} s: look at its server{error}"
                )
            }
            Self::SourceStopped { source } => write!(
                f,
                "source `{source}` is not consumed any more: consume it again to take messages"
            ),
            Self::SourcePanicked { source } => write!(
                f,
                "a panic outside the handlers ended the intake of source `{source}`: restart the \
                 process, and look for the text of the panic in its output"
            ),
        }
    }
}

/// A dispatcher with its name.
struct Named<'a>(&'a Option<String>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "dispatcher `{name}`"),
            None => f.write_str("the dispatcher"),
        }
    }
}

/// The last error, at the end of a text.
struct Why<'a>(&'a Option<String>);

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(error) => write!(f, " (the last error: {error})"),
            None => Ok(()),
        }
    }
}
