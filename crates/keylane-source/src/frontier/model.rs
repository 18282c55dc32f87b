//! The frontier against sorted sets, over several generations of one log.

use std::collections::BTreeSet;
use std::ops::Range;

use proptest::prelude::*;

use super::{Beyond, Completion, DeliverError, Delivered, Frontier, Limits};

#[derive(Clone, Debug)]
enum Step {
    /// The log delivers the next offset that it has. At its end it grows by one, so far behind the
    /// last.
    Deliver(u64),
    /// One that was delivered before, or passed over.
    DeliverAgain(prop::sample::Index),
    /// One of those that are open.
    Complete(prop::sample::Index),
    /// The first one.
    CompleteFirst,
    /// Any offset below the end, or not far above it.
    CompleteAny(prop::sample::Index),
    /// The log has nothing in the next offsets.
    Skip(u64),
    /// The generation ends, and the next one knows what fits into so many bytes.
    HandOver(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let gap = prop_oneof![
        40 => Just(1),
        12 => 1..4_u64,
        4 => 1..200_u64,
        1 => 1..1_500_u64,
    ];
    let bytes = prop_oneof![Just(usize::MAX), 0..40_usize];
    let step = prop_oneof![
        40 => gap.prop_map(Step::Deliver),
        2 => index().prop_map(Step::DeliverAgain),
        24 => index().prop_map(Step::Complete),
        4 => Just(Step::CompleteFirst),
        4 => index().prop_map(Step::CompleteAny),
        1 => (1..100_u64).prop_map(Step::Skip),
        1 => bytes.prop_map(Step::HandOver),
    ];
    prop::collection::vec(step, 0..400)
}

fn limits() -> impl Strategy<Value = (usize, u64)> {
    let open = prop_oneof![3 => Just(1_000_usize), 1 => 1..20_usize];
    let span = prop_oneof![3 => Just(u64::MAX), 1 => 1..500_u64];
    (open, span)
}

/// What a frontier should be.
#[derive(Debug)]
struct Model {
    limits: (usize, u64),
    /// All offsets that the log has.
    log: BTreeSet<u64>,
    end: u64,
    open: BTreeSet<u64>,
    /// What was delivered in this generation and is not open.
    settled: BTreeSet<u64>,
    /// What this generation began with.
    carried: BTreeSet<u64>,
}

impl Model {
    fn new(at: u64, limits: (usize, u64)) -> Self {
        Self {
            limits,
            log: BTreeSet::new(),
            end: at,
            open: BTreeSet::new(),
            settled: BTreeSet::new(),
            carried: BTreeSet::new(),
        }
    }

    fn position(&self) -> u64 {
        if let Some(first) = self.open.first() {
            return *first;
        }
        let is_unknown = |offset: &u64| !self.carried.contains(offset);
        (self.end..).find(is_unknown).expect("carried is finite")
    }

    fn deliver(&mut self, offset: u64) -> Result<Delivered, DeliverError> {
        if offset >= Frontier::HIGHEST {
            return Err(DeliverError::TooHigh);
        }
        if offset < self.end {
            return Err(DeliverError::OutOfOrder);
        }
        let is_far = |first: &u64| offset - first >= self.limits.1;
        if self.open.first().is_some_and(is_far) {
            return Err(DeliverError::SpanTooWide);
        }
        let is_done = self.carried.contains(&offset);
        if !is_done && self.open.len() == self.limits.0 {
            return Err(DeliverError::TooManyOpen);
        }
        self.end = offset + 1;
        if is_done {
            self.settled.insert(offset);
            return Ok(Delivered::Done);
        }
        self.open.insert(offset);
        Ok(Delivered::Open)
    }

    fn complete(&mut self, offset: u64) -> Completion {
        let before = self.position();
        if !self.open.remove(&offset) {
            return if self.is_done(offset) {
                Completion::AlreadyDone
            } else {
                Completion::NotOpen
            };
        }
        self.settled.insert(offset);
        match self.position() {
            to if to > before => Completion::Advanced { to },
            _ => Completion::Beyond,
        }
    }

    fn is_done(&self, offset: u64) -> bool {
        let is_carried = offset >= self.end && self.carried.contains(&offset);
        offset < self.position() || self.settled.contains(&offset) || is_carried
    }

    /// The settled positions above the position, and what was carried and is still to come.
    fn beyond(&self) -> BTreeSet<u64> {
        let position = self.position();
        let settled = self.settled.range(position..);
        settled
            .chain(self.carried.range(self.end.max(position)..))
            .copied()
            .collect()
    }

    /// The same, with the gaps between two of them that nothing open is in. Above the end nothing
    /// is known to be a gap.
    fn beyond_runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for offset in self.beyond() {
            match runs.last_mut() {
                Some(run)
                    if run.end == offset
                        || offset < self.end
                            && self.open.range(run.end..offset).next().is_none() =>
                {
                    run.end = offset + 1;
                }
                _ => runs.push(offset..offset + 1),
            }
        }
        runs
    }

    /// What the log delivers next.
    fn next(&mut self, gap: u64) -> u64 {
        if let Some(next) = self.log.range(self.end..).next() {
            return *next;
        }
        let next = self.end + gap - 1;
        self.log.insert(next);
        next
    }
}

struct World {
    frontier: Frontier,
    model: Model,
    limits: Limits,
    /// The highest position so far: over all generations it never moves back.
    position: u64,
    /// What was completed in any generation and not forgotten at a hand-over.
    done: BTreeSet<u64>,
}

impl World {
    fn new(at: u64, limits: (usize, u64)) -> Self {
        let (open, span) = limits;
        let limits = Limits::default().open(open).span(span);
        Self {
            frontier: Frontier::new(at).with_limits(limits),
            model: Model::new(at, (open, span.min(1 << 37))),
            limits,
            position: at,
            done: BTreeSet::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Deliver(gap) => {
                let offset = self.model.next(gap);
                let delivered = self.model.deliver(offset);
                assert_eq!(self.frontier.deliver(offset), delivered, "deliver {offset}");
                let is_again = delivered == Ok(Delivered::Open) && self.done.contains(&offset);
                assert!(!is_again, "{offset} is handled again");
            }
            Step::DeliverAgain(index) => {
                if self.model.end > 0 {
                    let offset = index.index(self.model.end as usize) as u64;
                    assert_eq!(self.frontier.deliver(offset), Err(DeliverError::OutOfOrder));
                }
            }
            Step::Complete(index) => {
                let count = self.model.open.len();
                if count > 0 {
                    let offset = self.model.open.iter().nth(index.index(count));
                    self.complete(*offset.expect("the index is in its range"));
                }
            }
            Step::CompleteFirst => {
                if let Some(first) = self.model.open.first() {
                    self.complete(*first);
                }
            }
            Step::CompleteAny(index) => {
                self.complete(index.index(self.model.end as usize + 100) as u64);
            }
            Step::Skip(count) => {
                // Not over what the log has.
                let next = self.model.log.range(self.model.end..).next();
                let to = self.model.end + count;
                let to = next.map_or(to, |next| to.min(*next));
                self.model.end = to.min(Frontier::HIGHEST);
                self.frontier.skip_to(to);
            }
            Step::HandOver(most_bytes) => self.hand_over(most_bytes),
        }
        self.check();
    }

    fn complete(&mut self, offset: u64) {
        if self.model.open.contains(&offset) {
            self.done.insert(offset);
        }
        let completion = self.model.complete(offset);
        assert_eq!(
            self.frontier.complete(offset),
            completion,
            "complete {offset}"
        );
    }

    fn hand_over(&mut self, most_bytes: usize) {
        let encoded = self.frontier.encode(most_bytes);
        assert!(encoded.bytes.len() <= most_bytes);
        let beyond = Beyond::decode(&encoded.bytes).expect("it was encoded");
        // All of it, or all below what is left out.
        let end = encoded.left_out.unwrap_or(u64::MAX);
        let carried: BTreeSet<_> = beyond.runs().flatten().collect();
        let expected = self.model.beyond_runs().into_iter().flatten();
        assert!(
            carried
                .iter()
                .copied()
                .eq(expected.filter(|offset| *offset < end))
        );
        let position = self.frontier.position();
        self.done
            .retain(|offset| *offset < position || carried.contains(offset));

        let model = &mut self.model;
        let at = model.position();
        let frontier = std::mem::replace(&mut self.frontier, Frontier::resume(at, beyond));
        assert!(
            frontier
                .abandon()
                .into_iter()
                .eq(std::mem::take(&mut model.open))
        );
        self.frontier = self.frontier.clone().with_limits(self.limits);
        model.settled.clear();
        model.carried = carried;
        model.end = at;
    }

    fn check(&mut self) {
        let (frontier, model) = (&self.frontier, &self.model);
        let position = frontier.position();
        assert_eq!(position, model.position());
        assert!(position >= self.position, "it has moved back");
        self.position = position;
        assert_eq!(frontier.end(), model.end);
        assert_eq!(frontier.first_open(), model.open.first().copied());
        assert_eq!(frontier.open_len(), model.open.len());
        let span = model.open.first().map_or(0, |first| model.end - first);
        assert_eq!(frontier.span(), span);
    }

    /// What takes longer to compare.
    fn check_all(&self) {
        let (frontier, model) = (&self.frontier, &self.model);
        assert_eq!(frontier.beyond_len(), model.beyond().len() as u64);
        assert!(frontier.open().eq(model.open.iter().copied()));
        let beyond: Vec<_> = frontier.beyond().collect();
        assert_eq!(beyond, model.beyond_runs());
        let known = model.log.iter().chain(&model.carried);
        for offset in known.flat_map(|offset| [offset.saturating_sub(1), *offset, *offset + 1]) {
            assert_eq!(frontier.is_done(offset), model.is_done(offset), "{offset}");
        }
    }
}

proptest! {
    #![proptest_config(testkit_cases::cases(300))]

    #[test]
    fn a_frontier_is_what_the_sets_say(
        at in prop_oneof![
            1 => Just(0),
            4 => 0..1_000_u64,
            1 => Frontier::HIGHEST - 5_000..=Frontier::HIGHEST,
        ],
        limits in limits(),
        steps in steps(),
    ) {
        let mut world = World::new(at, limits);
        for (step, number) in steps.into_iter().zip(0..) {
            world.step(step);
            if number % 40 == 0 {
                world.check_all();
            }
        }
        world.check_all();
    }

    /// Whatever a new generation begins with: it comes to its end.
    #[test]
    fn any_beyond_can_be_resumed_with(
        at in 0..300_u64,
        ranges in prop::collection::vec((0..300_u64, 0..50_u64), 0..20),
        log in prop::collection::btree_set(0..400_u64, 0..100),
    ) {
        let ranges = ranges.into_iter().map(|(start, len)| start..start + len);
        let beyond: Beyond = ranges.collect();
        let mut frontier = Frontier::resume(at, beyond.clone());
        let mut model = Model::new(at, (usize::MAX, u64::MAX));
        model.carried = beyond.runs().flatten().collect();
        for offset in log.range(at..) {
            prop_assert_eq!(frontier.position(), model.position());
            prop_assert_eq!(frontier.beyond().collect::<Vec<_>>(), model.beyond_runs());
            prop_assert_eq!(frontier.beyond_len(), model.beyond().len() as u64);
            prop_assert_eq!(frontier.deliver(*offset), model.deliver(*offset));
        }
        for offset in log.iter().rev() {
            prop_assert_eq!(frontier.complete(*offset), model.complete(*offset));
        }
        prop_assert_eq!((frontier.position(), frontier.open_len()), (model.position(), 0));
    }
}
