//! The events of a lane, and its rules.

use std::time::Duration;

use proptest::prelude::*;

use super::super::Decision;
use super::super::testing::rules;
use crate::Gcra;
use crate::rules::{AtLimit, BatchRules, CoalesceRules, PlanRules, Rules, SequenceRules, Survivor};
use crate::sequence::{Mode, OnGap, Start};

/// What happens to the lane, if it can.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A message of this version comes, may wait this long for its start, and must. If the lane is
    /// full, its sender waits at the gate, unless the message was on its way.
    Offer {
        version: u64,
        lifetime: Option<u64>,
        delay: u64,
        on_its_way: bool,
    },
    /// What the router merges has become one.
    Merge,
    /// A runner takes what is in the ready queue.
    Take,
    /// The handler of the head returns `Pending`.
    Suspend,
    /// The head settles.
    Finish,
    /// The head failed: it is tried again, or stops the lane.
    Fail {
        halts: bool,
    },
    /// A batch is over, and its members failed.
    FailMembers,
    /// Milliseconds pass, and timers go off: at their time, or less than a tick before it.
    Pass(u64, bool),
    /// The next timer goes off long before its time: the wheel holds no longer one.
    GoOff,
    Decide(Decision),
    /// The end of what is in the lane now is marked.
    Mark,
    /// The version store answers.
    Answer(Option<u64>),
    /// The lease of the key is granted, or is not held any more. It is asked for before each start.
    Lease(bool),
    /// It is lost while the handler runs, and the handler is dropped.
    Lose,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let decision = prop::sample::select(vec![
        Decision::Pause,
        Decision::Resume,
        Decision::Skip,
        Decision::RetryNow,
        Decision::Replace,
        Decision::Purge,
    ]);
    let offer = (1..8_u64, prop::option::of(1..30_u64), 0..4_u64, 0..8_u8);
    let step = prop_oneof![
        8 => offer.prop_map(|(version, lifetime, delay, hurry)| Step::Offer {
            version,
            lifetime,
            delay: if delay == 3 { 10 } else { 0 },
            on_its_way: hurry == 0,
        }),
        4 => Just(Step::Merge),
        8 => Just(Step::Take),
        1 => Just(Step::Suspend),
        6 => Just(Step::Finish),
        1 => any::<bool>().prop_map(|halts| Step::Fail { halts }),
        1 => Just(Step::FailMembers),
        3 => (0..25_u64, any::<bool>()).prop_map(|(millis, early)| Step::Pass(millis, early)),
        1 => Just(Step::GoOff),
        2 => decision.prop_map(Step::Decide),
        1 => Just(Step::Mark),
        2 => prop::option::of(0..3_u64).prop_map(Step::Answer),
        2 => any::<bool>().prop_map(Step::Lease),
        1 => Just(Step::Lose),
    ];
    prop::collection::vec(step, 0..80)
}

fn plan() -> impl Strategy<Value = PlanRules> {
    let survivor = prop::sample::select(vec![Survivor::First, Survivor::Latest, Survivor::Merged]);
    let mode = prop::sample::select(vec![Mode::Contiguous, Mode::Monotonic]);
    let on_gap = prop::sample::select(vec![OnGap::Skip, OnGap::DeadLetter, OnGap::Halt]);
    let start = prop::sample::select(vec![Start::At(1), Start::FirstSeen]);
    prop_oneof![
        Just(PlanRules::Fifo),
        (survivor, any::<bool>())
            .prop_map(|(survivor, shares)| PlanRules::Coalesce(CoalesceRules { survivor, shares })),
        (1..4_usize, 0..2_u64).prop_map(|(max, linger)| PlanRules::Batch(BatchRules {
            max,
            linger: Duration::from_millis(5 * linger),
        })),
        (mode, start, on_gap, 1..4_usize, any::<bool>()).prop_map(
            |(mode, start, on_gap, early, is_stored)| PlanRules::Sequence(SequenceRules {
                mode,
                start,
                early,
                patience: Duration::from_millis(20),
                on_gap,
                is_stored,
            })
        ),
    ]
}

pub(super) fn all_rules() -> impl Strategy<Value = Rules> {
    let at_limit = prop::sample::select(vec![AtLimit::Park, AtLimit::DropOldest, AtLimit::Refuse]);
    let rate = prop::option::of(Just(Gcra::new(8_000_000, 2)));
    (plan(), at_limit, rate, any::<bool>()).prop_map(|(plan, at_limit, rate, expires)| {
        let sequences = matches!(plan, PlanRules::Sequence(_));
        Rules {
            at_limit,
            rate,
            expires: expires && !sequences,
            ..rules(plan)
        }
    })
}
