//! Limits, and sources and messages that break them.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::IntakeSettings;
use keylane::error::ConsumeError;
use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_testkit::scenario::{quiet, settle, watch_for_engine_panics, within};
use keylane_testkit::{Act, Evidence, Gate, Script};

use crate::support::{
    Rig, adds_up, id_of, key_of, message, orders, plain, scripted, settings, stats_add_up, until,
};

#[tokio::test(start_paused = true)]
async fn no_more_is_held_than_the_limit_says() {
    for limit in [1, 2, 7] {
        let rig = Rig::new(plain());
        let gate = Gate::new();
        let orders = rig.spawn(Act::ok().waits(&gate));
        let intake = orders
            .consume_with(rig.server.source(), settings().held(limit))
            .unwrap();
        rig.publish(0..20);
        until(|| intake.stats().held == limit).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((rig.server.held(), intake.stats().held), (limit, limit));
        stats_add_up(&intake);
        gate.open();
        let report = rig.finish(&orders, intake).await;
        assert_eq!(rig.server.counts().most_held, limit);
        assert_eq!((report.received, report.restarts), (20, 0));
    }
}

/// A limit in bytes is passed by one message at most, and by what the source hands over beyond its room.
#[tokio::test(start_paused = true)]
async fn no_more_bytes_are_held_than_the_limit_says() {
    const SIZE: usize = 1_000;
    for limit in [1, SIZE, 7 * SIZE, 7 * SIZE + 1] {
        let rig = Rig::new(plain());
        let gate = Gate::new();
        let orders = rig.spawn(Act::ok().waits(&gate));
        let intake = orders
            .consume_with(rig.server.source(), settings().held_bytes(limit))
            .unwrap();
        let whole = limit.div_ceil(SIZE);
        for id in 1..=20 {
            rig.history.sending(id, 1, id).ok();
            let mut message = message(id, id);
            let rest = SIZE - message.size();
            let filling = vec![0; rest - 1].into();
            message.headers.push(("h".into(), Some(filling)));
            assert_eq!(message.size(), SIZE);
            rig.server.publish([message]);
        }
        until(|| intake.stats().held == whole).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(intake.stats().held_bytes, whole * SIZE);
        stats_add_up(&intake);
        gate.open();
        let report = rig.finish(&orders, intake).await;
        assert_eq!(rig.server.counts().most_held, whole);
        assert_eq!((report.received, report.restarts), (20, 0));
    }
}

/// What is deferred has no bytes here until it is read again.
#[tokio::test(start_paused = true)]
async fn deferred_messages_do_not_count_as_bytes() {
    let rig = Rig::new(plain().random_access());
    let gate = Gate::new();
    let script = Script::new(&rig.history).key(1, Act::ok().waits(&gate));
    let orders = orders()
        .lane_capacity(10, keylane::Overflow::Wait)
        .spawn(scripted(script))
        .unwrap();
    let size = message(1, 1).size();
    let settings = settings().held(2_000).held_bytes(300 * size);
    let intake = orders.consume_with(rig.server.source(), settings).unwrap();
    rig.publish([1; 20]);
    until(|| orders.stats().full_lanes == 1).await;
    rig.publish([1; 3_000]);
    until(|| intake.stats().held == 3_020).await;
    let stats = intake.stats();
    assert_eq!(
        stats.held_bytes,
        (stats.held - stats.deferred) * size,
        "{stats:?}"
    );
    rig.publish((0..500).map(|n| 2 + n % 7));
    rig.handled(500).await;
    gate.open();
    rig.handled(3_520).await;
    quiet().await;
    assert_eq!(intake.stats().held_bytes, 0);
    let report = rig.finish(&orders, intake).await;
    assert_eq!(report.acked, 3_520);
}

/// With next to no room left, what settles is read in batches. What is no batch is read as well: the
/// others of the source wait for it.
#[tokio::test(start_paused = true)]
async fn a_source_without_room_goes_on_one_by_one() {
    const HELD: usize = 64;
    let rig = Rig::new(plain());
    let gate = Gate::new();
    // All keys but one wait, so that never more than one settles.
    let script = Script::new(&rig.history).otherwise(Act::ok().sleeps(Duration::from_millis(1)));
    let script = (1..HELD as u64).fold(script, |script, key| {
        script.key(key, Act::ok().waits(&gate))
    });
    let orders = orders().spawn(scripted(script)).unwrap();
    let settings = settings().held(HELD);
    let intake = orders.consume_with(rig.server.source(), settings).unwrap();
    rig.publish(1..HELD as u64);
    rig.publish(vec![HELD as u64; 200]);
    within(rig.handled(200)).await;
    assert_eq!(intake.stats().held, HELD - 1);
    gate.open();
    let report = rig.finish(&orders, intake).await;
    assert_eq!(report.acked, 200 + HELD as u64 - 1);
}

/// The dispatcher ends while less than a batch has settled: the source is told nevertheless.
#[tokio::test(start_paused = true)]
async fn what_settled_before_the_end_is_told_however_little_it_is() {
    const HELD: usize = 64;
    let rig = Rig::new(plain());
    let orders = orders()
        .capacity_bytes(100, |raw: &RawMessage| raw.payload.len())
        .spawn(scripted(Script::new(&rig.history)))
        .unwrap();
    // These wait for a second in no lane.
    let large = || RawMessage::new(vec![0; 101]).key("large");
    rig.server.publish((2..HELD).map(|_| large()));
    rig.publish([1, 2]);
    let settings = settings().held(HELD);
    let intake = orders.consume_with(rig.server.source(), settings).unwrap();
    // Without the clock.
    settle().await;
    assert_eq!(rig.history.handled().len(), 2);
    assert_eq!(intake.stats().held, HELD, "two are no batch");
    within(async { orders.abort().await }).await;
    let report = within(async { intake.ended().await }).await;
    adds_up(&report);
    assert_eq!(report.acked, 2, "{report:?}");
    assert_eq!(rig.server.left(), HELD - 2);
}

/// A lane is only seen to be full when the dispatcher has got to its messages, so a source makes it
/// deeper than its capacity, by what it places in a turn or two. However much waits aside, it is
/// never let in all at once.
#[tokio::test(start_paused = true)]
async fn a_hot_key_does_not_flood_its_lane() {
    const CAPACITY: usize = 100;
    let rig = Rig::new(plain());
    // Most of them are handled at once, more than a lane has, so that lanes run empty as well.
    let slow = Act::ok().sleeps(Duration::from_millis(1));
    let script = Script::new(&rig.history).otherwise(Act::ok());
    let script = (0..3_000)
        .step_by(271)
        .fold(script, |script, id| script.message(id, slow.clone()));
    let orders = orders()
        .lane_capacity(CAPACITY, keylane::Overflow::Wait)
        .spawn(scripted(script))
        .unwrap();
    rig.publish(vec![1; 3_000]);
    let intake = rig.consume(&orders);
    let key = message(1, 0).key.unwrap();
    let mut deepest = 0;
    while rig.history.handled().len() < 3_000 {
        tokio::time::sleep(Duration::from_micros(100)).await;
        deepest = deepest.max(orders.inspect(&key).map_or(0, |lane| lane.depth));
    }
    assert!((CAPACITY..3 * CAPACITY).contains(&deepest), "{deepest}");
    let report = rig.finish(&orders, intake).await;
    assert_eq!(report.acked, 3_000);
}

#[tokio::test(start_paused = true)]
async fn zero_is_no_limit() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    let zero = Duration::ZERO;
    let cases: [(&str, IntakeSettings); 4] = [
        ("held", settings().held(0)),
        ("stall_after", settings().stall_after(zero)),
        ("longest_pause", settings().longest_pause(zero)),
        ("confirm_every", settings().confirm_every(zero)),
    ];
    for (name, settings) in cases {
        let refused = orders.consume_with(rig.server.source(), settings);
        assert!(
            matches!(refused, Err(ConsumeError::Zero(of)) if of == name),
            "{name}"
        );
    }
    // No time for attempts after a revoke is a time.
    let at_once = settings().revoke_within(zero);
    let intake = orders.consume_with(rig.server.source(), at_once).unwrap();
    rig.publish([1]);
    rig.finish(&orders, intake).await;
}

#[tokio::test(start_paused = true)]
async fn the_longest_times_are_for_ever() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    let for_ever = IntakeSettings::new()
        .held(usize::MAX)
        .stall_after(Duration::MAX)
        .longest_pause(Duration::MAX)
        .revoke_within(Duration::MAX)
        .confirm_every(Duration::MAX);
    let intake = orders.consume_with(rig.server.source(), for_ever).unwrap();
    rig.publish([1, 2]);
    rig.handled(2).await;
    rig.revoke();
    rig.publish([1]);
    rig.handled(3).await;
    let report = intake.stop().within(Duration::MAX).await;
    adds_up(&report);
    assert_eq!((report.acked, rig.server.left()), (3, 0));
}

/// A source that goes beyond its room is taken at its word, and gets less room afterwards.
#[tokio::test(start_paused = true)]
async fn what_is_handed_over_beyond_the_room_is_handled() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    rig.server.faults().hand_over_beyond_room(5);
    rig.publish(0..20);
    let intake = orders
        .consume_with(rig.server.source(), settings().held(4))
        .unwrap();
    until(|| intake.stats().held == 9).await;
    gate.release(4);
    rig.handled(4).await;
    quiet().await;
    assert_eq!(intake.stats().held, 5);
    stats_add_up(&intake);
    gate.open();
    rig.finish(&orders, intake).await;
}

/// One position that is handed over twice is two messages, handled one after the other.
#[tokio::test(start_paused = true)]
async fn one_position_handed_over_twice_is_handled_twice() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok().sleeps(Duration::from_millis(5)));
    rig.server.faults().hand_over_twice(2);
    rig.publish([1, 1, 2]);
    let intake = rig.consume(&orders);
    rig.handled(5).await;
    rig.server.until(|server| server.left() == 0).await;
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!((report.received, report.acked), (5, 5));
    rig.judge(&orders, Evidence::new().redelivers());
}

/// A message whose key cannot be told goes back, and does not stop the others.
#[tokio::test(start_paused = true)]
async fn a_key_function_that_panics_costs_that_message_only() {
    let rig = Rig::new(plain());
    watch_for_engine_panics();
    let key = |raw: &RawMessage| {
        if id_of(raw) == 2 {
            std::panic::resume_unwind(Box::new("a key that panics".to_owned()));
        }
        raw.key.clone()
    };
    let orders = Dispatcher::key_by_opt(key)
        .on_exhausted(OnExhausted::Halt)
        .spawn(scripted(Script::new(&rig.history)))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1, 2, 3, 2]);
    rig.handled(3).await;
    until(|| intake.stats().nacked == 1).await;
    assert_eq!(rig.history.handled().len(), 3);
    stats_add_up(&intake);
    assert!(intake.stats().last_error.is_some());
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!(rig.server.left(), 1);
}

/// A message that is larger than all the room there is goes back, and does not stop the others.
#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_costs_that_message_only() {
    let rig = Rig::new(plain());
    let orders = orders()
        .capacity_bytes(100, |raw: &RawMessage| raw.payload.len())
        .spawn(scripted(Script::new(&rig.history)))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1, 2]);
    rig.server.publish([RawMessage::new(vec![0; 101]).key("3")]);
    rig.publish([1, 2]);
    rig.handled(4).await;
    until(|| intake.stats().nacked == 1).await;
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!(rig.server.left(), 1);
}

/// The bytes of a dispatcher are a limit for a source, too; what it cannot place waits.
#[tokio::test(start_paused = true)]
async fn messages_wait_for_room_in_bytes() {
    let rig = Rig::new(plain());
    let orders = orders()
        .capacity_bytes(20, |raw: &RawMessage| raw.payload.len())
        .spawn(scripted(
            Script::new(&rig.history).otherwise(Act::ok().sleeps(Duration::from_millis(3))),
        ))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.publish((0..50).map(|n| n % 5));
    rig.finish(&orders, intake).await;
}

/// With nack, a message that cannot be placed does not spin: other work goes on, and so does time.
#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_placed_does_not_come_again_at_full_speed() {
    let rig = Rig::new(plain().nack());
    let orders = orders()
        .capacity_bytes(100, |raw: &RawMessage| raw.payload.len())
        .spawn(scripted(Script::new(&rig.history)))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.server.publish([RawMessage::new(vec![0; 101]).key("3")]);
    settle().await;
    assert!(
        rig.server.counts().delivered < 100,
        "{:?}",
        rig.server.counts()
    );
    drop(intake);
}

/// Room that was waited for is not kept when what waited for it has gone back.
#[tokio::test(start_paused = true)]
async fn room_is_not_kept_for_a_message_that_went_back() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let script = Script::new(&rig.history).otherwise(Act::ok().waits(&gate));
    let orders = orders().capacity(1).spawn(scripted(script)).unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1, 2]);
    gate.arrivals(1).await;
    until(|| intake.stats().held == 2).await;
    intake.pause();
    quiet().await;
    rig.revoke();
    until(|| intake.stats().given_back == 1).await;
    gate.open();
    rig.handled(1).await;
    let sent = within(orders.submit(crate::support::message(3, 99))).await;
    assert_eq!(sent.unwrap().await.unwrap(), 99);
    intake.resume();
    rig.server.until(|server| server.left() == 0).await;
    adds_up(&intake.stop().await);
}

/// The functions that are asked of a message besides its key: what one of them says no word about
/// goes back, and does not stop the others.
#[tokio::test(start_paused = true)]
async fn a_function_of_the_message_that_panics_costs_that_message_only() {
    fn asked(raw: &RawMessage) -> &RawMessage {
        if id_of(raw) == 2 {
            std::panic::resume_unwind(Box::new("a function that panics".to_owned()));
        }
        raw
    }
    for function in ["version", "lifetime", "class"] {
        let rig = Rig::new(plain());
        let orders = orders().lane_capacity(4, keylane::Overflow::Wait);
        let orders = match function {
            "version" => orders.sequence(keylane::discipline::Sequence::contiguous(
                |raw: &RawMessage| asked(raw).version.unwrap(),
            )),
            "lifetime" => orders.expire_by(|raw| asked(raw).version.map(Duration::from_secs)),
            _ => orders.priority(2, |raw| u8::from(asked(raw).version.is_some())),
        };
        let orders = orders.spawn(scripted(Script::new(&rig.history))).unwrap();
        let intake = rig.consume(&orders);
        rig.publish([1, 2, 3, 1]);
        rig.handled(3).await;
        until(|| intake.stats().nacked == 1).await;
        stats_add_up(&intake);
        let report = within(async { intake.stop().await }).await;
        adds_up(&report);
        assert_eq!((report.acked, report.nacked), (3, 1), "{function}");
    }
}

/// A key whose comparison panics once, in the task of the driver.
#[derive(Clone, Debug)]
struct Touchy {
    name: Bytes,
    fuse: Arc<Mutex<Touch>>,
}

#[derive(Debug, Default)]
struct Touch {
    /// The task of the driver.
    task: Option<tokio::task::Id>,
    /// Comparisons until it panics.
    left: Option<usize>,
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        let mut fuse = self.fuse.lock().unwrap();
        if fuse.task.is_some() && tokio::task::try_id() == fuse.task {
            fuse.left = match fuse.left {
                Some(0) => {
                    fuse.left = None;
                    drop(fuse);
                    std::panic::resume_unwind(Box::new("a key that panics".to_owned()));
                }
                left => left.map(|left| left - 1),
            };
        }
        self.name == other.name
    }
}

impl Eq for Touchy {}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The key's own code may panic wherever the driver compares keys: the source is opened again, and
/// nothing is lost.
#[tokio::test(start_paused = true)]
async fn a_key_whose_comparison_panics_in_the_driver() {
    let mut restarts = 0;
    for left in 0..60 {
        let rig = Rig::new(plain().random_access());
        watch_for_engine_panics();
        let fuse = Arc::new(Mutex::new(Touch::default()));
        let key = {
            let fuse = Arc::clone(&fuse);
            move |raw: &RawMessage| {
                fuse.lock().unwrap().task = tokio::task::try_id();
                let (name, fuse) = (raw.key.clone()?, Arc::clone(&fuse));
                Some(Touchy { name, fuse })
            }
        };
        let script =
            Script::new(&rig.history).otherwise(Act::ok().sleeps(Duration::from_millis(1)));
        let orders = Dispatcher::key_by_opt(key)
            .on_exhausted(OnExhausted::Halt)
            .lane_capacity(4, keylane::Overflow::Wait)
            .spawn(
                move |context: keylane::Context<Touchy>, message: RawMessage| {
                    script.run(key_of(&message), id_of(&message), context.attempt())
                },
            )
            .unwrap();
        let intake = orders
            .consume_with(rig.server.source(), settings())
            .unwrap();
        rig.publish(vec![1; 30]);
        rig.handled(10).await;
        fuse.lock().unwrap().left = Some(left);
        rig.publish(vec![1; 100]);
        rig.server.until(|server| server.left() == 0).await;
        let report = within(async { intake.stop().await }).await;
        adds_up(&report);
        restarts += report.restarts;
        let evidence = Evidence::new().redelivers();
        let evidence = evidence.quiescent(tokio::time::Instant::now());
        rig.history.check(&evidence).expect("a correct driver");
    }
    assert!(restarts > 20, "{restarts}");
}
