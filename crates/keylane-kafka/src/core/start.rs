//! Where a partition begins. Pure.

use keylane_source::frontier::Beyond;

use super::partition::Start;
use crate::control::Overtaken;

/// Where a group begins in partitions for which it has no committed offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartAt {
    /// At the first record of the log: no record is left out.
    #[default]
    Earliest,
    /// At the end of the log: only records from now on. The source commits this offset at once, so
    /// that a restart before the first handled record leaves no record out.
    ///
    /// This applies to the first start of a group and to the partitions of that moment: as long as
    /// the group has no committed offset at all in the topics that it reads (in any topic, if it
    /// reads a [`pattern`](crate::KafkaSourceBuilder::pattern)). Partitions and topics that are created later, and
    /// topics that are added to a group that has begun, begin at their first record.
    Latest,
}

/// What happens when retention has overtaken the committed offset of a partition: records were
/// deleted before they were handled.
///
/// A warning in the log and [`PartitionStatus`](crate::PartitionStatus) contain both offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOvertaken {
    /// The partition continues at the first record that is left: no further record is left out.
    #[default]
    Earliest,
    /// The partition continues at the end of its log: the records that are left are as old as the
    /// deleted ones.
    Latest,
    /// The partition is not read, and has [failed](crate::PartitionStatus), until the offset of the
    /// group is set to one that the log has. The other partitions go on.
    Halt,
}

/// The committed offset of a partition.
#[derive(Debug)]
pub(crate) enum Committed {
    /// It could not be read.
    Unknown,
    Nothing,
    /// This offset, and the offsets above it that are done.
    At(u64, Beyond),
}

/// The bounds of a partition's log, from its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// The first offset of the log.
    pub(crate) first: u64,
    /// One past the last readable record.
    pub(crate) end: u64,
}

/// The decision where to begin, from the committed offset and the log.
#[derive(Debug)]
pub(crate) enum Begin {
    /// The partition begins there. Retention may have overtaken the committed offset.
    At(Start, Option<Overtaken>),
    /// The partition does not begin, since retention has overtaken the committed offset.
    Halted(Overtaken),
}

/// Decides where a partition begins. `at_end`: the group begins with it, and only with records from
/// now on.
pub(crate) fn begin(
    committed: Committed,
    log: Log,
    at_end: bool,
    on_overtaken: OnOvertaken,
) -> Begin {
    let uncommitted = |at, beyond| Start {
        at,
        beyond,
        is_committed: false,
    };
    match committed {
        Committed::Unknown | Committed::Nothing => {
            let at = if at_end { log.end } else { log.first };
            Begin::At(uncommitted(at, Beyond::default()), None)
        }
        Committed::At(at, beyond) if at >= log.first => {
            let start = Start {
                at,
                beyond,
                is_committed: true,
            };
            Begin::At(start, None)
        }
        Committed::At(committed, beyond) => {
            let log_start = log.first;
            let overtaken = Overtaken {
                committed,
                log_start,
            };
            match on_overtaken {
                OnOvertaken::Earliest => Begin::At(uncommitted(log_start, beyond), Some(overtaken)),
                OnOvertaken::Latest => {
                    let start = uncommitted(log.end, Beyond::default());
                    Begin::At(start, Some(overtaken))
                }
                OnOvertaken::Halt => Begin::Halted(overtaken),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: Log = Log {
        first: 100,
        end: 200,
    };

    fn at(committed: Committed, at_end: bool, on_overtaken: OnOvertaken) -> (u64, bool) {
        match begin(committed, LOG, at_end, on_overtaken) {
            Begin::At(start, overtaken) => (start.at, overtaken.is_some()),
            Begin::Halted(overtaken) => panic!("{overtaken:?}"),
        }
    }

    #[test]
    fn what_is_not_committed_begins_at_an_end_of_the_log() {
        let nothing = |at_end| at(Committed::Nothing, at_end, OnOvertaken::Halt);
        assert_eq!(nothing(false), (100, false));
        assert_eq!(nothing(true), (200, false));
    }

    #[test]
    fn what_is_committed_and_there_goes_on_whoever_begins() {
        for offset in [100, 150, 200, 201] {
            for at_end in [false, true] {
                let committed = Committed::At(offset, Beyond::default());
                let begun = at(committed, at_end, OnOvertaken::Latest);
                assert_eq!(begun, (offset, false));
            }
        }
    }

    #[test]
    fn what_retention_has_overtaken_begins_by_the_policy() {
        let begun = |policy, at_end| {
            let committed = Committed::At(99, Beyond::default());
            begin(committed, LOG, at_end, policy)
        };
        let overtaken = Overtaken {
            committed: 99,
            log_start: 100,
        };
        for at_end in [false, true] {
            for (policy, expected) in [(OnOvertaken::Earliest, 100), (OnOvertaken::Latest, 200)] {
                let Begin::At(start, said) = begun(policy, at_end) else {
                    panic!("{policy:?} halts");
                };
                assert_eq!((start.at, said), (expected, Some(overtaken)));
                assert!(!start.is_committed, "it is committed at once");
            }
            let halted = begun(OnOvertaken::Halt, at_end);
            assert!(matches!(halted, Begin::Halted(said) if said == overtaken));
        }
    }
}
