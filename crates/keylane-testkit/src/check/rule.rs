//! The names of the rules.

use std::fmt;

/// An invariant, named as in the list I1 to I15.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// I1: at quiescence every accepted message is settled.
    NoLoss,
    /// I2: only accepted messages have events, and attempts are counted without gaps.
    NoInvention,
    /// I3: attempts of one key never overlap; under two tokens only if the older's writes are
    /// refused.
    Exclusion,
    /// I4: first starts of a key follow acceptance; a rewind only after a crash or revoke.
    Order,
    /// I5: an ack only after a successful end or a durable dead letter.
    Acks,
    /// I6: committed offsets never pass an incomplete one. Never judged: the events carry no
    /// offsets.
    Offsets,
    /// I7: a message is handled twice only if a crash left its ack unconfirmed.
    Duplicates,
    /// I8: one dead letter, after exactly the attempts allowed, before the key goes on.
    DeadLetters,
    /// I9: the last version handled is the last one sent.
    Coalescing,
    /// I10: versions handled strictly increase.
    Sequencing,
    /// I11: after the faults work ends, and no lane waits without a reason.
    Liveness,
    /// I12: tokens accepted by a sink never decrease.
    Fencing,
    /// I13: at quiescence no lane, permit or memory remains in use.
    Memory,
    /// I14: after a drain nothing runs, and every accepted message is in its report.
    Drain,
    /// I15: a blocked key hardly slows the other keys.
    Independence,
}

impl Rule {
    /// All rules in order.
    pub const ALL: [Rule; 15] = [
        Rule::NoLoss,
        Rule::NoInvention,
        Rule::Exclusion,
        Rule::Order,
        Rule::Acks,
        Rule::Offsets,
        Rule::Duplicates,
        Rule::DeadLetters,
        Rule::Coalescing,
        Rule::Sequencing,
        Rule::Liveness,
        Rule::Fencing,
        Rule::Memory,
        Rule::Drain,
        Rule::Independence,
    ];
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::NoLoss => "I1 no loss",
            Rule::NoInvention => "I2 no invention",
            Rule::Exclusion => "I3 exclusion",
            Rule::Order => "I4 order",
            Rule::Acks => "I5 acks",
            Rule::Offsets => "I6 offsets",
            Rule::Duplicates => "I7 duplicates",
            Rule::DeadLetters => "I8 dead letters",
            Rule::Coalescing => "I9 coalescing",
            Rule::Sequencing => "I10 sequencing",
            Rule::Liveness => "I11 liveness",
            Rule::Fencing => "I12 fencing",
            Rule::Memory => "I13 memory",
            Rule::Drain => "I14 drain",
            Rule::Independence => "I15 independence",
        })
    }
}
