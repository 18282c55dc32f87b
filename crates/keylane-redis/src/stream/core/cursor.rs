//! The order in which the owner reads the entries of one stream. Pure.
//!
//! ```text
//!  Pending ── nothing more is pending ──► New ◄──────────────┐
//!                                          │                 │ nothing more is between
//!         a former owner has taken entries │                 │
//!         since the take-over              └──► Gap ─────────┘
//! ```
//!
//! Entries are handed over with ascending ids. A former owner that does not know yet that it has
//! lost the stream may read once more. Those entries are pending for it, and are above all entries
//! that were handed over before. So each read also asks for the first pending entry above those. If
//! it is not the first entry of the read, the entries in between are taken first.

use super::super::id::EntryId;

#[derive(Debug)]
pub(crate) struct Cursor<T> {
    /// All entries up to this one were handed over, or had settled before.
    last: EntryId,
    phase: Phase<T>,
}

#[derive(Debug)]
enum Phase<T> {
    Pending,
    New,
    /// The entries of a read, which follow those in between.
    Gap(Vec<(EntryId, T)>),
}

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Pending entries between these two.
    Page {
        above: EntryId,
        below: Option<EntryId>,
        is_take_over: bool,
    },
    /// New entries, and the first pending one above this.
    Read { above: EntryId },
}

/// Pending entries that were taken.
#[derive(Debug)]
pub(crate) struct Page<T> {
    pub(crate) entries: Vec<(EntryId, T)>,
    /// The last entry of the page, including those without a body.
    pub(crate) last: Option<EntryId>,
    /// There are no more pending entries, and new ones are above this.
    pub(crate) end: Option<EntryId>,
}

impl<T> Cursor<T> {
    /// Creates a cursor that begins with all pending entries of the group.
    pub(crate) fn new() -> Self {
        Self {
            last: EntryId::default(),
            phase: Phase::Pending,
        }
    }

    /// The entry up to which all were handed over, or had settled before.
    pub(crate) fn last(&self) -> EntryId {
        self.last
    }

    pub(crate) fn next(&self) -> Next {
        let above = self.last;
        match &self.phase {
            Phase::Pending => Next::Page {
                above,
                below: None,
                is_take_over: true,
            },
            Phase::Gap(batch) => Next::Page {
                above,
                below: batch.first().map(|(id, _)| *id),
                is_take_over: false,
            },
            Phase::New => Next::Read { above },
        }
    }

    /// Processes the answer to a page. Returns the entries to hand over.
    pub(crate) fn paged(&mut self, page: Page<T>) -> Vec<(EntryId, T)> {
        let mut entries = page.entries;
        self.last = self.last.max(page.last.unwrap_or_default());
        let Some(end) = page.end else {
            return entries;
        };
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Gap(batch) if !batch.is_empty() => entries.extend(self.pass(batch)),
            Phase::Pending | Phase::New | Phase::Gap(_) => self.last = self.last.max(end),
        }
        entries
    }

    /// Processes the answer to a read. Returns the entries to hand over.
    pub(crate) fn read(
        &mut self,
        batch: Vec<(EntryId, T)>,
        first_pending: Option<EntryId>,
    ) -> Vec<(EntryId, T)> {
        let is_between = match (batch.first(), first_pending) {
            (None, pending) => pending.is_some(),
            (Some((first, _)), Some(pending)) => pending < *first,
            (Some(_), None) => false,
        };
        if is_between {
            self.phase = Phase::Gap(batch);
            return Vec::new();
        }
        self.pass(batch)
    }

    /// Hands entries over. If an operator sets a group back, they are read again, from below.
    fn pass(&mut self, batch: Vec<(EntryId, T)>) -> Vec<(EntryId, T)> {
        if let Some((last, _)) = batch.last() {
            self.last = *last;
        }
        batch
    }

    /// Whether an empty read means that there are no entries.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.phase, Phase::New)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A stream with one group, as the server sees it: numbers as ids.
    #[derive(Debug, Default)]
    struct Stream {
        added: u64,
        delivered: u64,
        /// The consumer of each pending entry.
        pending: BTreeMap<u64, Who>,
        deleted: Vec<u64>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Who {
        Me,
        Former,
    }

    fn id(number: u64) -> EntryId {
        EntryId::new(number, 0)
    }

    impl Stream {
        fn read(&mut self, who: Who, most: u64) -> Vec<(EntryId, u64)> {
            let to = self.added.min(self.delivered + most);
            let new: Vec<u64> = (self.delivered + 1..=to)
                .filter(|one| !self.deleted.contains(one))
                .collect();
            self.delivered = to;
            self.pending.extend(new.iter().map(|one| (*one, who)));
            new.into_iter().map(|one| (id(one), one)).collect()
        }

        fn first_pending(&self, above: EntryId) -> Option<EntryId> {
            let mut pending = self.pending.keys().map(|one| id(*one));
            pending.find(|one| *one > above)
        }

        fn page(&mut self, above: EntryId, below: Option<EntryId>, most: usize) -> Page<u64> {
            let within = |one: u64| id(one) > above && below.is_none_or(|below| id(one) < below);
            let pending = self.pending.keys().copied().filter(|one| within(*one));
            let found: Vec<u64> = pending.take(most).collect();
            let mut entries = Vec::new();
            for one in &found {
                if self.deleted.contains(one) {
                    self.pending.remove(one);
                } else {
                    self.pending.insert(*one, Who::Me);
                    entries.push((id(*one), *one));
                }
            }
            Page {
                entries,
                last: found.last().map(|one| id(*one)),
                end: (found.len() < most).then(|| id(self.delivered)),
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add,
        /// The former owner reads, late.
        Steal(u64),
        /// The owner makes its next request.
        Go(u64),
        /// An entry that was handed over is acked.
        Ack(usize),
        /// An entry is deleted that was not handed over yet.
        Delete(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Add),
            1 => (1..4_u64).prop_map(Step::Steal),
            4 => (1..4_u64).prop_map(Step::Go),
            2 => any::<usize>().prop_map(Step::Ack),
            1 => any::<u64>().prop_map(Step::Delete),
        ]
    }

    fn go(stream: &mut Stream, cursor: &mut Cursor<u64>, most: u64) -> Vec<u64> {
        let entries = match cursor.next() {
            Next::Page { above, below, .. } => {
                cursor.paged(stream.page(above, below, most as usize))
            }
            Next::Read { above } => {
                let batch = stream.read(Who::Me, most);
                cursor.read(batch, stream.first_pending(above))
            }
        };
        entries.into_iter().map(|(_, number)| number).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        #[test]
        fn all_are_handed_over_once_and_in_order(
            before in 0..6_u64,
            taken in 0..6_u64,
            steps in proptest::collection::vec(step(), 0..60),
        ) {
            let mut stream = Stream { added: before, ..Stream::default() };
            stream.read(Who::Former, taken);
            let mut cursor = Cursor::new();
            let mut handed: Vec<u64> = Vec::new();
            for step in steps {
                match step {
                    Step::Add => stream.added += 1,
                    Step::Steal(most) => drop(stream.read(Who::Former, most)),
                    Step::Go(most) => handed.extend(go(&mut stream, &mut cursor, most)),
                    Step::Ack(which) if !handed.is_empty() => {
                        let one = handed[which % handed.len()];
                        stream.pending.remove(&one);
                    }
                    Step::Ack(_) => {}
                    Step::Delete(which) => {
                        let one = which % (stream.added + 2);
                        if !handed.contains(&one) && one > 0 && one <= stream.added {
                            stream.deleted.push(one);
                        }
                    }
                }
            }
            for _ in 0..200 {
                handed.extend(go(&mut stream, &mut cursor, 3));
            }
            prop_assert!(handed.is_sorted_by(|one, other| one < other), "{handed:?}");
            let missing: Vec<u64> = (1..=stream.added)
                .filter(|one| !handed.contains(one) && !stream.deleted.contains(one))
                .collect();
            prop_assert!(missing.is_empty(), "{missing:?} of {}: {handed:?}", stream.added);
        }
    }

    #[test]
    fn a_group_that_was_set_back_is_followed() {
        let mut cursor = Cursor::new();
        cursor.paged(Page {
            entries: vec![],
            last: None,
            end: Some(id(9)),
        });
        let again = cursor.read(vec![(id(3), 3), (id(4), 4)], None);
        assert_eq!(again.len(), 2);
        assert_eq!(cursor.last(), id(4));
    }
}
