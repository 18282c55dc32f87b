//! What is seen of an intake, and what is left when it has ended.

use std::fmt;

use tokio::time::Instant;

/// What an intake does.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntakeState {
    /// It opens its source, or waits before it does so again.
    #[default]
    Opening,
    /// It takes messages in.
    Running,
    /// It takes nothing in until [`Intake::resume`](crate::Intake::resume).
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
    /// What it does now.
    pub state: IntakeState,
    /// Messages that the source has handed over.
    pub received: u64,
    /// Messages the source was told to forget: handled, coalesced, or given up by a named policy.
    pub acked: u64,
    /// Messages whose dead letter is durable.
    pub dead_lettered: u64,
    /// Messages the source was told to take back while their generation went on.
    pub nacked: u64,
    /// Messages that went back because their generation ended, or the intake.
    pub given_back: u64,
    /// Messages that are here and not settled. Those that are deferred are among them, though they
    /// do not count against [`IntakeSettings::held`](crate::IntakeSettings::held).
    pub held: usize,
    /// Bytes of those, as far as their source knows their size. Deferred ones have none.
    pub held_bytes: usize,
    /// Of those held, how many wait beside full lanes.
    pub aside: usize,
    /// Of those beside full lanes, how many are only positions, and are read again later.
    pub deferred: usize,
    /// Outcomes that were not told to the source, because the generation of the message was over.
    pub stale: u64,
    /// How often the source was opened again.
    pub restarts: u64,
    /// Why it failed last.
    pub last_error: Option<String>,
    /// Parts of the source that fail while the others go on, by their names; 1,024 of them at most.
    /// Those of a source that is opened again are found anew.
    pub failed_parts: Vec<FailedPart>,
}

/// A part of a source that fails while the others go on: a partition, a stream, a table.
///
/// It is tried again all the time, and leaves this state by itself. It is in the log when it fails,
/// again after 10 seconds, and then after twice the time before, up to 10 minutes.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPart {
    /// Its name, as the source writes it.
    pub part: String,
    /// Why it failed last, cut to 256 characters.
    pub why: String,
    /// When it failed first since it last worked.
    pub since: Instant,
    /// When it failed last.
    pub last: Instant,
    /// How often it has failed since then.
    pub times: u64,
}

/// What became of every message that a source has handed over.
///
/// `acked + dead_lettered + nacked + given_back = received`.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntakeReport {
    /// Messages that the source has handed over.
    pub received: u64,
    /// Messages the source was told to forget, and has confirmed.
    pub acked: u64,
    /// Messages whose dead letter is durable.
    pub dead_lettered: u64,
    /// Messages the source was told to take back while their generation went on.
    pub nacked: u64,
    /// Messages that went back because their generation ended, or the intake. Those whose ack was
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
