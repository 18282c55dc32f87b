//! The cases of the suite, and their requirements.

use std::fmt;

use keylane::source::Features;

use super::harness::Fault;

/// One case of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Case {
    /// The source refuses features that it does not declare, with
    /// [`SourceError::unsupported`](keylane::source::SourceError).
    Refusals,
    /// The messages of a key are handled in order, and one after the other.
    Order,
    /// A slow key does not delay the others.
    SlowKey,
    /// A key whose lane is full does not delay the others.
    HotKey,
    /// A source hands over no more than there is room for.
    Room,
    /// A source without messages reports that in time.
    Idle,
    /// A `receive` that is dropped loses nothing.
    DroppedReceive,
    /// A message that fails is tried again, before the others of its key.
    Retry,
    /// A message that fails for good has its dead letter before its key goes on.
    DeadLetter,
    /// The same with dead letters that the source keeps.
    DeadLetterAtSource,
    /// A message that cannot be decoded has its dead letter, in the order of its key.
    Undecodable,
    /// Random messages are handled as they were sent, also as dead letters and after their way
    /// back.
    RoundTrip,
    /// Keys and payloads arrive as they were sent: large, empty, missing, binary.
    Payloads,
    /// An acked message does not come again.
    Acked,
    /// A message that was not handled at the end comes again, in order.
    HandedBack,
    /// A nacked message comes again in the same generation, in order.
    Nack,
    /// An ack is lost: the message comes again.
    AckLost,
    /// An ack of an older delivery does not ack a newer one.
    StaleAck,
    /// A message that settles after its generation was lost is not reported to the source.
    LateAck,
    /// A revoke while messages are parked.
    RevokeParked,
    /// A revoke while messages are in flight.
    RevokeInFlight,
    /// A revoke while messages back off.
    RevokeBackingOff,
    /// A revoke while a lane is halted.
    RevokeHalted,
    /// Ownership is lost with work in every state.
    Lost,
    /// Two stops at once, while messages arrive: one report, which adds up.
    Stop,
    /// The server restarts.
    Restart,
    /// The server is killed.
    Kill,
    /// Each message comes two to five times: late, out of order, after its ack.
    Storm,
    /// A stall without an error is detected, and ended.
    Stall,
    /// A message that is held for longer than its lease comes again, unless the lease is extended.
    Lease,
    /// Positions are read again.
    RandomAccess,
    /// Attempts are counted across processes.
    Attempts,
    /// A finite source comes to its end.
    End,
    /// A consumer is killed at random points.
    ProcessKilled,
}

/// The reason why a case is not run.
type Lacking = Option<String>;

impl Case {
    /// All cases.
    pub const ALL: [Case; 34] = [
        Case::Refusals,
        Case::Order,
        Case::SlowKey,
        Case::HotKey,
        Case::Room,
        Case::Idle,
        Case::DroppedReceive,
        Case::Retry,
        Case::DeadLetter,
        Case::DeadLetterAtSource,
        Case::Undecodable,
        Case::RoundTrip,
        Case::Payloads,
        Case::Acked,
        Case::HandedBack,
        Case::Nack,
        Case::AckLost,
        Case::StaleAck,
        Case::LateAck,
        Case::RevokeParked,
        Case::RevokeInFlight,
        Case::RevokeBackingOff,
        Case::RevokeHalted,
        Case::Lost,
        Case::Stop,
        Case::Restart,
        Case::Kill,
        Case::Storm,
        Case::Stall,
        Case::Lease,
        Case::RandomAccess,
        Case::Attempts,
        Case::End,
        Case::ProcessKilled,
    ];

    /// Returns its name, which is also that of its test in
    /// [`conformance_tests!`](crate::conformance_tests).
    pub fn name(self) -> &'static str {
        match self {
            Self::Refusals => "refusals",
            Self::Order => "order",
            Self::SlowKey => "slow_key",
            Self::HotKey => "hot_key",
            Self::Room => "room",
            Self::Idle => "idle",
            Self::DroppedReceive => "dropped_receive",
            Self::Retry => "retry",
            Self::DeadLetter => "dead_letter",
            Self::DeadLetterAtSource => "dead_letter_at_source",
            Self::Undecodable => "undecodable",
            Self::RoundTrip => "round_trip",
            Self::Payloads => "payloads",
            Self::Acked => "acked",
            Self::HandedBack => "handed_back",
            Self::Nack => "nack",
            Self::AckLost => "ack_lost",
            Self::StaleAck => "stale_ack",
            Self::LateAck => "late_ack",
            Self::RevokeParked => "revoke_parked",
            Self::RevokeInFlight => "revoke_in_flight",
            Self::RevokeBackingOff => "revoke_backing_off",
            Self::RevokeHalted => "revoke_halted",
            Self::Lost => "lost",
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Kill => "kill",
            Self::Storm => "storm",
            Self::Stall => "stall",
            Self::Lease => "lease",
            Self::RandomAccess => "random_access",
            Self::Attempts => "attempts",
            Self::End => "end",
            Self::ProcessKilled => "process_killed",
        }
    }

    /// Returns the case of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|case| case.name() == name)
    }

    pub(super) fn lacks(self, features: Features, faults: &[Fault]) -> Lacking {
        let fault = |fault: Fault| {
            let can = faults.contains(&fault);
            (!can).then(|| format!("the harness cannot inject {fault}"))
        };
        let feature = |declared: bool, what: &str| {
            (!declared).then(|| format!("the source does not declare that it {what}"))
        };
        let survives = || {
            feature(
                features.does_survive_restart(),
                "survives a restart of its server",
            )
        };
        match self {
            Self::Nack => feature(features.has_nack(), "takes back what it is given back"),
            Self::DeadLetterAtSource | Self::RoundTrip => {
                feature(features.keeps_dead_letters(), "keeps dead letters")
            }
            Self::Lease => feature(features.lease_of().is_some(), "has leases"),
            Self::RandomAccess => feature(features.has_random_access(), "reads positions again"),
            Self::Attempts => feature(features.does_count_attempts(), "counts attempts"),
            Self::End => feature(features.is_finite(), "comes to an end"),
            Self::AckLost => fault(Fault::CutBeforeAck),
            Self::LateAck | Self::Lost => fault(Fault::Lose),
            Self::RevokeParked
            | Self::RevokeInFlight
            | Self::RevokeBackingOff
            | Self::RevokeHalted => fault(Fault::Revoke),
            Self::Restart => survives().or_else(|| fault(Fault::Restart)),
            Self::Kill => survives().or_else(|| fault(Fault::Kill)),
            Self::Storm => fault(Fault::Storm),
            Self::Stall => fault(Fault::Stall),
            _ => None,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns all cases, in the order in which [`run`](super::run) runs them.
pub fn cases() -> impl Iterator<Item = Case> {
    Case::ALL.into_iter()
}
