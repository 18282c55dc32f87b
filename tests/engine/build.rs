//! Settings that do not fit are refused, each by its name.

use std::time::Duration;

use keylane::error::BuildError;
use keylane::{OnExhausted, Overflow};
use keylane_testkit::scenario::{MS, Message, dispatcher, paused, scripted};
use keylane_testkit::{History, LetterBox, Script};

/// Builds with one setting, inside a runtime, and returns what is wrong with it.
macro_rules! refused {
    ($builder:expr) => {{
        let script = Script::new(&History::new());
        paused().block_on(async { $builder.spawn(scripted(script)).err() })
    }};
}

#[test]
fn no_runtime() {
    let script = Script::new(&History::new());
    let error = dispatcher().spawn(scripted(script)).unwrap_err();
    assert_eq!(error, BuildError::NoRuntime);
    assert!(error.to_string().contains("#[tokio::main]"), "{error}");
}

#[test]
fn no_timers() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let script = Script::new(&History::new());
    // The probe of the timers panics inside, and is caught: it need not be printed.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let error = runtime.block_on(async { dispatcher().spawn(scripted(script)).unwrap_err() });
    std::panic::set_hook(hook);
    assert_eq!(error, BuildError::NoTimers);
    assert!(error.to_string().contains("enable_time"), "{error}");
}

#[test]
fn nothing_can_be_zero() {
    let zero = |name| Some(BuildError::Zero(name));
    assert_eq!(refused!(dispatcher().concurrency(0)), zero("concurrency"));
    assert_eq!(refused!(dispatcher().capacity(0)), zero("capacity"));
    assert_eq!(
        refused!(dispatcher().capacity_bytes(0, |_| 1)),
        zero("capacity_bytes")
    );
    assert_eq!(
        refused!(dispatcher().lane_capacity(0, Overflow::Wait)),
        zero("lane_capacity")
    );
    assert_eq!(refused!(dispatcher().quantum(0)), zero("quantum"));
    assert_eq!(
        refused!(dispatcher().stuck_after(Duration::ZERO)),
        zero("stuck_after")
    );
    assert_eq!(
        refused!(dispatcher().attempt_timeout(Duration::ZERO)),
        zero("attempt_timeout")
    );
    assert_eq!(
        BuildError::Zero("quantum").to_string(),
        "`quantum` must not be zero"
    );
    // But a lane may stall without being counted apart.
    assert_eq!(refused!(dispatcher().stalled_capacity(0)), None);
}

#[test]
fn nothing_can_be_more_than_can_be_counted() {
    let too_large = |name| Some(BuildError::TooLarge(name));
    let most = tokio::sync::Semaphore::MAX_PERMITS / 2;
    assert_eq!(
        refused!(dispatcher().capacity(most + 1)),
        too_large("capacity")
    );
    assert_eq!(
        refused!(dispatcher().capacity_bytes(usize::MAX, |_| 1)),
        too_large("capacity_bytes")
    );
    assert_eq!(
        refused!(dispatcher().stalled_capacity(usize::MAX)),
        too_large("stalled_capacity")
    );
    let lanes = dispatcher().lane_capacity(usize::MAX, Overflow::Wait);
    assert_eq!(refused!(lanes), too_large("lane_capacity"));
    assert_eq!(
        refused!(dispatcher().capacity(most).capacity_bytes(most, |_| 1)),
        None
    );
    assert_eq!(
        refused!(dispatcher().concurrency(usize::MAX).quantum(u32::MAX)),
        None
    );
    assert_eq!(
        refused!(
            dispatcher()
                .attempt_timeout(Duration::MAX)
                .stuck_after(Duration::MAX)
        ),
        None
    );
}

#[test]
fn shards_are_a_power_of_two() {
    for shards in [0, 1, 3, 6, 100] {
        assert_eq!(
            refused!(dispatcher().shards(shards)),
            Some(BuildError::Shards(shards))
        );
    }
    for shards in [2, 4, 64, 1_024] {
        assert_eq!(refused!(dispatcher().shards(shards)), None);
    }
}

#[test]
fn letters_need_a_sink() {
    let full = || dispatcher().lane_capacity(1, Overflow::DeadLetter);
    assert_eq!(refused!(full()), Some(BuildError::NoDeadLetterSink));
    assert_eq!(
        refused!(full().on_exhausted(OnExhausted::Halt)),
        Some(BuildError::NoDeadLetterSink)
    );
    let sink = || LetterBox::new(&History::new()).sink(|message: &Message| message.id);
    assert_eq!(refused!(full().overflow_sink(sink())), None);
    assert_eq!(
        refused!(full().on_exhausted(OnExhausted::dead_letter(sink()))),
        None
    );
    assert_eq!(
        refused!(full().on_exhausted(OnExhausted::Halt).overflow_sink(sink())),
        None
    );
}

/// There is no handle to what was not built, and nothing of it is left.
#[test]
fn what_is_refused_leaves_nothing_running() {
    paused().block_on(async {
        let metrics = tokio::runtime::Handle::current().metrics();
        let script = Script::new(&History::new());
        assert!(dispatcher().capacity(0).spawn(scripted(script)).is_err());
        assert_eq!(metrics.num_alive_tasks(), 0);
        tokio::time::sleep(MS).await;
    });
}
