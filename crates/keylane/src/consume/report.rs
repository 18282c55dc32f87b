//! The state of an intake, and the report at its end.

use std::fmt;

use keylane_source::Hold;
use tokio::time::Instant;

/// The state of an intake.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntakeState {
    /// It opens its source, or waits before it does so again.
    #[default]
    Opening,
    /// It takes messages in.
    Running,
    /// It takes nothing in until [`Intake::resume`](crate::consume::Intake::resume).
    Paused,
    /// It takes nothing in, and finishes what is here.
    Stopping,
    /// It has ended.
    Ended,
}

/// Counters and gauges of one intake.
///
/// `received = acked + dead_lettered + nacked + given_back + held`.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntakeStats {
    /// The current state.
    pub state: IntakeState,
    /// Messages that the source has handed over.
    pub received: u64,
    /// Messages that the source was told to forget: handled, coalesced, or given up by a named
    /// policy.
    pub acked: u64,
    /// Messages whose dead letter is durable.
    pub dead_lettered: u64,
    /// Messages that the source was told to take back while their generation went on.
    pub nacked: u64,
    /// Messages that went back because their generation or the intake ended.
    pub given_back: u64,
    /// Messages that are here and not settled, including the deferred ones, which do not count
    /// against [`IntakeSettings::held`](crate::consume::IntakeSettings::held).
    pub held: usize,
    /// Bytes of the held messages, as far as their source knows their size. Deferred messages have
    /// none.
    pub held_bytes: usize,
    /// Held messages that wait beside full lanes.
    pub aside: usize,
    /// Messages beside full lanes of which only the position is kept, and which are read again
    /// later.
    pub deferred: usize,
    /// Outcomes that the source was not told, because the generation of the message was over.
    pub stale: u64,
    /// Acks that the source was told and has not confirmed. They are among
    /// [`acked`](Self::acked), and are given back if the source fails before it confirms them.
    pub unconfirmed: u64,
    /// How often the source was opened; 0 until it is open for the first time.
    pub opened: u64,
    /// How often the source was opened again.
    pub restarts: u64,
    /// How often the source has failed, or has not answered in time.
    pub failures: u64,
    /// Those of the [`failures`](Self::failures) in which it has not answered in time.
    pub stalls: u64,
    /// For how long the messages that are here are held, if a time ends that unless it is extended:
    /// for lists, streams and inboxes in SQL, and for sources with a
    /// [lease](crate::source::Features::lease). Once it has ended, other processes may have them.
    pub hold: Option<Hold>,
    /// The time of the first failure since the source last worked: since it confirmed a settlement,
    /// or said that it has no messages.
    pub failing_since: Option<Instant>,
    /// The last error of the source.
    pub last_error: Option<String>,
    /// Parts of the source that fail while the others go on, by their names; 1,024 of them at most.
    /// The list starts anew when the source is opened again.
    pub failed_parts: Vec<FailedPart>,
}

/// A part of a source that fails while the others go on: a partition, a stream, a table.
///
/// The source tries it again all the time, and it leaves this state by itself. It is logged when it
/// fails, again after 10 seconds, and then after twice the time before, up to 10 minutes.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPart {
    /// The name of the part, as the source writes it.
    pub part: String,
    /// The last error, cut to 256 characters.
    pub why: String,
    /// The time of the first failure since it last worked.
    pub since: Instant,
    /// The time of the last failure.
    pub last: Instant,
    /// The number of failures since then.
    pub times: u64,
}

/// The outcomes of all messages that a source has handed over.
///
/// `acked + dead_lettered + nacked + given_back = received`.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntakeReport {
    /// Messages that the source has handed over.
    pub received: u64,
    /// Messages that the source was told to forget, and has confirmed.
    pub acked: u64,
    /// Messages whose dead letter is durable.
    pub dead_lettered: u64,
    /// Messages that the source was told to take back while their generation went on.
    pub nacked: u64,
    /// Messages that went back because their generation or the intake ended. Messages whose ack was
    /// not confirmed are among them: they may come again.
    pub given_back: u64,
    /// How often the source was opened again.
    pub restarts: u64,
}

impl fmt::Display for IntakeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} received = {} acked + {} dead-lettered + {} nacked + {} given back",
            self.received, self.acked, self.dead_lettered, self.nacked, self.given_back
        )
    }
}
