//! Lines of the log about one message.
//!
//! The engine does not know where a message of a source is. So it makes a [`MessageLine`], and the
//! driver of the source writes it with the [`Origin`] of the message.

use std::time::Duration;

use tracing::Level;

/// What the log says of one message.
#[derive(Debug)]
pub(crate) struct MessageLine {
    /// The key, as it is shown.
    pub(crate) key: String,
    pub(crate) what: What,
}

/// What has happened to a message.
#[derive(Debug)]
pub(crate) enum What {
    Failed {
        attempt: u32,
        error: Box<str>,
    },
    LeaseLost {
        attempt: u32,
    },
    RetryPanicked {
        panic: String,
    },
    GivenUp {
        attempts: u32,
        fate: Fate,
    },
    LetterRefused {
        refusals: u32,
        error: Box<str>,
    },
    Halted {
        error: Box<str>,
    },
    HeldWithoutKey {
        error: Box<str>,
    },
    StartRefused {
        reason: Box<str>,
    },
    /// `suppressed`: how many were lost without a line since the last one.
    Lost {
        lost: Lost,
        suppressed: u64,
    },
    /// `is_alone`: the runtime has run nothing else meanwhile.
    Blocks {
        elapsed: Duration,
        is_alone: bool,
    },
    /// Which message the handler had that blocked all threads. Written when the driver runs again.
    HasBlocked,
}

/// What becomes of a message that was given up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    DeadLetter,
    Halt,
    Hold,
    Discard,
}

/// Why a message is lost that was not given up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lost {
    ToTheLimit,
    Expired,
}

/// Where a message has come from.
#[derive(Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) source: &'a str,
    /// `None`: it is not known any more.
    pub(crate) position: Option<&'a str>,
    /// The producer's id, if the source knows it.
    pub(crate) id: Option<&'a str>,
}

/// From this refusal of a letter on, a person must look: the sink is not merely slow.
const IN_A_ROW: u32 = 3;

/// Whether lines of this level are looked at.
pub(crate) fn is_logged(level: Level) -> bool {
    match level {
        Level::ERROR => tracing::enabled!(target: "keylane", Level::ERROR),
        Level::WARN => tracing::enabled!(target: "keylane", Level::WARN),
        _ => tracing::enabled!(target: "keylane", Level::DEBUG),
    }
}

/// One line: the fields of its message, and its own. A field that is `None` is left out.
macro_rules! line {
    ($level:ident, $line:ident, $origin:ident, $($fields:tt)*) => {
        tracing::$level!(
            target: "keylane",
            key = %$line.key,
            source = $origin.map(|origin| tracing::field::display(origin.source)),
            position = $origin.and_then(|origin| origin.position).map(tracing::field::display),
            id = $origin.and_then(|origin| origin.id).map(tracing::field::display),
            $($fields)*
        )
    };
}

impl What {
    /// Whether it says anything without the position.
    pub(crate) fn says_more_than_where(&self) -> bool {
        !matches!(self, Self::HasBlocked)
    }

    pub(crate) fn level(&self) -> Level {
        match self {
            Self::Failed { .. }
            | Self::LeaseLost { .. }
            | Self::GivenUp { .. }
            | Self::Lost { .. } => Level::WARN,
            Self::LetterRefused { refusals, .. } if *refusals < IN_A_ROW => Level::WARN,
            Self::Blocks { is_alone, .. } if !is_alone => Level::WARN,
            Self::StartRefused { .. } => Level::DEBUG,
            Self::LetterRefused { .. }
            | Self::Blocks { .. }
            | Self::HasBlocked
            | Self::RetryPanicked { .. }
            | Self::Halted { .. }
            | Self::HeldWithoutKey { .. } => Level::ERROR,
        }
    }
}

impl MessageLine {
    /// Writes it. `origin`: `None` for a message that no source has handed over.
    pub(crate) fn write(&self, origin: Option<&Origin<'_>>) {
        match &self.what {
            What::Failed { attempt, error } => {
                line!(warn, self, origin, attempt, %error, "an attempt failed");
            }
            What::LeaseLost { attempt } => line!(
                warn,
                self,
                origin,
                attempt,
                "the lease of the key was lost: the attempt is dropped, and starts again under a \
                 new lease"
            ),
            What::RetryPanicked { panic } => line!(
                error,
                self,
                origin,
                %panic,
                "the retry policy panicked: the message is not retried"
            ),
            What::GivenUp { attempts, fate } => {
                let fate = fate.text();
                line!(
                    warn,
                    self,
                    origin,
                    attempts,
                    "gave up on the message: {fate}"
                );
            }
            What::LetterRefused { refusals, error } => {
                const WHAT: &str =
                    "the dead-letter sink did not accept the message, will retry; its key waits";
                match *refusals < IN_A_ROW {
                    true => line!(warn, self, origin, refusals, %error, "{WHAT}"),
                    false => line!(error, self, origin, refusals, %error, "{WHAT}"),
                }
            }
            What::Halted { error } => line!(
                error,
                self,
                origin,
                %error,
                "a lane is halted: resume, skip or replace its head"
            ),
            What::HeldWithoutKey { error } => line!(
                error,
                self,
                origin,
                %error,
                "a message without a key is held: it goes back to its source when the intake ends, and \
                 is held again when it comes back; set `OnExhausted::AtSource` or a dead-letter sink"
            ),
            What::StartRefused { reason } => line!(
                debug,
                self,
                origin,
                %reason,
                "the source did not count the attempt, will retry"
            ),
            What::Lost { lost, suppressed } => {
                let lost = lost.text();
                line!(warn, self, origin, suppressed, "{lost}");
            }
            What::Blocks {
                elapsed,
                is_alone: false,
            } => line!(
                warn,
                self,
                origin,
                ?elapsed,
                "a handler blocks its thread; move blocking work to `spawn_blocking`"
            ),
            What::Blocks {
                elapsed,
                is_alone: true,
            } => line!(
                error,
                self,
                origin,
                ?elapsed,
                "a handler blocks its thread, and no other thread of the runtime is free, so \
                 nothing else runs; move blocking work to `spawn_blocking`"
            ),
            What::HasBlocked => line!(
                error,
                self,
                origin,
                "this message had the handler that blocked all threads of the runtime"
            ),
        }
    }
}

impl Lost {
    fn text(self) -> &'static str {
        match self {
            Self::ToTheLimit => {
                "a lane is full, and a message of it is dropped: raise `lane_capacity`, or look why \
                 the lane is slow"
            }
            Self::Expired => {
                "a message has expired before it was started, and is dropped: raise \
                 `expire_after`, or look why its lane waits"
            }
        }
    }
}

impl Fate {
    fn text(self) -> &'static str {
        match self {
            Self::DeadLetter => "it becomes a dead letter",
            Self::Halt => "its lane halts",
            Self::Hold => "it has no lane, and is held",
            Self::Discard => "it is discarded",
        }
    }
}
