//! Settings and steps, at random.

use std::time::Duration;

use keylane::Overflow;
use proptest::prelude::*;
use proptest::sample::Index;

pub(crate) type Key = u8;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    pub(crate) capacity: usize,
    pub(crate) stalled_capacity: usize,
    pub(crate) lane_capacity: usize,
    pub(crate) overflow: Overflow,
    pub(crate) attempts: u32,
    pub(crate) delay: Duration,
    pub(crate) exhausted: After,
    pub(crate) timeout: Option<Duration>,
    /// How long the dead-letter sink takes.
    pub(crate) sink: Duration,
    pub(crate) quantum: u32,
}

/// What happens after the last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Discard,
    Letter,
    Halt,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// `try_send` or `try_submit`.
    Try {
        key: Option<Key>,
        kind: Kind,
        submit: bool,
    },
    /// `send` or `submit`, in a task that may wait.
    Send {
        key: Option<Key>,
        kind: Kind,
        submit: bool,
    },
    /// A sender that waits gives up.
    Cancel(Index),
    /// A handler that waits answers.
    Answer(Index, Answer),
    /// Time passes.
    Pass(Duration),
    /// The operator decides about a lane, halted or not.
    Decide(Key, Decision, Kind),
    /// The sink takes letters from now on, or refuses them.
    Sink(bool),
    /// A receipt is dropped.
    Drop(Index),
    End(End),
}

/// What the handler does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Answers at its first poll.
    Now(Answer),
    /// Fails at its first poll, but for the second attempt.
    Flaky,
    /// Waits for a step to answer it.
    Held,
    /// Waits for one, and panics when it is dropped before.
    Bomb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Good,
    Error,
    Panic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Resume,
    Skip,
    Replace,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Drain(Option<Duration>),
    Close,
    Abort,
}

pub(crate) fn plans() -> impl Strategy<Value = Plan> {
    (settings(), prop::collection::vec(steps(), 0..80), ends()).prop_map(
        |(mut settings, mut steps, end)| {
            if let Some((at, end)) = end {
                if let End::Drain(Some(_)) = end {
                    // The model could not tell which of two timers dropped a handler.
                    settings.timeout = None;
                }
                steps.insert(at.index(steps.len() + 1), Step::End(end));
            }
            Plan { settings, steps }
        },
    )
}

fn settings() -> impl Strategy<Value = Settings> {
    let lane = (
        prop_oneof![1..5_usize, Just(1_000)],
        prop::sample::select(vec![
            Overflow::Wait,
            Overflow::Wait,
            Overflow::Reject,
            Overflow::DropOldest,
            Overflow::DeadLetter,
        ]),
    );
    let after = prop::sample::select(vec![After::Discard, After::Letter, After::Halt]);
    (
        prop_oneof![1..4_usize, Just(100)],
        prop_oneof![1..8_usize, Just(1_000)],
        prop_oneof![0..6_usize, Just(1_000)],
        lane,
        (1..4_u32, 2..30_u64, after),
        (
            prop::option::of(5..40_u64),
            prop_oneof![Just(0), 1..10_u64],
            1..4_u32,
        ),
    )
        .prop_map(
            |(concurrency, capacity, stalled_capacity, lane, failing, rest)| {
                let (lane_capacity, overflow) = lane;
                let (attempts, delay, exhausted) = failing;
                let (timeout, sink, quantum) = rest;
                // What a full lane does with a message is decided when it is routed. With senders that
                // wait for the capacity several may be routed in one step, in an order that is not known.
                let decides = matches!(overflow, Overflow::DropOldest | Overflow::DeadLetter);
                Settings {
                    concurrency,
                    capacity: if decides { 1_000 } else { capacity },
                    stalled_capacity,
                    lane_capacity,
                    overflow,
                    attempts,
                    delay: Duration::from_millis(delay),
                    exhausted,
                    timeout: timeout.map(Duration::from_millis),
                    sink: Duration::from_millis(sink),
                    quantum,
                }
            },
        )
}

fn steps() -> impl Strategy<Value = Step> {
    let message = || (keys(), kinds(), any::<bool>());
    prop_oneof![
        8 => message().prop_map(|(key, kind, submit)| Step::Try { key, kind, submit }),
        12 => message().prop_map(|(key, kind, submit)| Step::Send { key, kind, submit }),
        1 => any::<Index>().prop_map(Step::Cancel),
        10 => (any::<Index>(), answers()).prop_map(|(index, answer)| Step::Answer(index, answer)),
        6 => (1..40_u64).prop_map(|ms| Step::Pass(Duration::from_millis(ms))),
        1 => Just(Step::Pass(Duration::from_secs(40))),
        4 => (0..3_u8, decisions(), kinds()).prop_map(|(key, what, kind)| Step::Decide(key, what, kind)),
        1 => any::<bool>().prop_map(Step::Sink),
        1 => any::<Index>().prop_map(Step::Drop),
    ]
}

/// Few, so that they meet.
fn keys() -> impl Strategy<Value = Option<Key>> {
    prop_oneof![6 => (0..3_u8).prop_map(Some), 1 => Just(None)]
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        3 => answers().prop_map(Kind::Now),
        1 => Just(Kind::Flaky),
        5 => Just(Kind::Held),
        1 => Just(Kind::Bomb),
    ]
}

fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![3 => Just(Answer::Good), 3 => Just(Answer::Error), 1 => Just(Answer::Panic)]
}

fn decisions() -> impl Strategy<Value = Decision> {
    prop::sample::select(vec![Decision::Resume, Decision::Skip, Decision::Replace])
}

/// Where the end comes, if it comes before all steps are done, and a deadline now and then.
fn ends() -> impl Strategy<Value = Option<(Index, End)>> {
    let end = prop_oneof![
        2 => Just(End::Drain(None)),
        1 => (1..60_u64).prop_map(|ms| End::Drain(Some(Duration::from_millis(ms)))),
        2 => Just(End::Close),
        2 => Just(End::Abort),
    ];
    prop::option::weighted(0.7, (any::<Index>(), end))
}
