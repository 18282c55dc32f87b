//! The thread that reads ahead, while partitions come and go and functions of the user misbehave.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::{OnExhausted, Overflow};
use keylane_kafka::Record;
use keylane_testkit::Gate;
use keylane_testkit::scenario::boxed;
use tokio::time::timeout;

use crate::rebalances::taken_out;
use crate::records::{Order, orders};
use crate::stage::{Stage, until};

/// A gate for threads.
#[derive(Clone, Default)]
struct Bar(Arc<(Mutex<bool>, Condvar, AtomicUsize)>);

impl Bar {
    fn shut() -> Self {
        Self::default()
    }
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
    fn waiting(&self) -> usize {
        self.0.2.load(Ordering::SeqCst)
    }
    fn pass(&self) {
        self.0.2.fetch_add(1, Ordering::SeqCst);
        let mut open = self.0.0.lock().unwrap();
        while !*open {
            open = self.0.1.wait(open).unwrap();
        }
        drop(open);
        self.0.2.fetch_sub(1, Ordering::SeqCst);
    }
}

fn thread_is(name: &str) -> bool {
    std::thread::current().name() == Some(name)
}

/// The thread in which records are read again.
const JOB: &str = "keylane-kafka-job";

/// Records of the next assignment must not be dropped with the last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_a_partition_goes_and_comes_while_a_message_is_made() {
    let stage = Stage::new(1).await;
    stage.publish((0..50).map(|n| n % 5)).await;
    let bar = Bar::shut();
    let first = AtomicBool::new(true);
    let theirs = bar.clone();
    let make = move |record: &Record<'_>| {
        if record.place().offset == 10 && first.swap(false, Ordering::SeqCst) {
            theirs.pass();
        }
        Order::of(record)
    };
    let done = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&done);
    let consumer = orders()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |order: Order| {
            seen.lock().unwrap().push(order.offset);
            async { Ok(()) }
        }))
        .expect("a consumer");
    let source = stage.topic.builder().build_with(make).expect("a source");
    let intake = consumer
        .consume_with(source, IntakeSettings::new())
        .expect("an intake");
    until("the function waits", async || bar.waiting() == 1).await;
    let before = stage.topic.members().await;
    stage.topic.expel().await;
    // It must not come again while an earlier message is being made: there is nothing to wait for.
    let comes_again = until("it has come again", async || {
        let now = stage.topic.members().await;
        !now.is_empty() && now != before
    });
    let _ = timeout(Duration::from_secs(3), comes_again).await;
    bar.open();
    stage.publish((0..5).map(|n| n % 5)).await;
    stage.committed(&[55]).await;
    intake.stop().await;
    let mut all = done.lock().unwrap().clone();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (0..55).collect::<Vec<_>>());
}

/// The source does not know it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_a_partition_goes_and_comes_while_records_are_read_again() {
    let stage = Stage::new(1).await;
    // Key 0 is every other record.
    stage.publish((0..300).flat_map(|n| [0, 1 + n % 5])).await;
    let bar = Bar::shut();
    let theirs = bar.clone();
    let first = AtomicBool::new(true);
    let make = move |record: &Record<'_>| {
        // A broker that reads from a slow disk behaves like this.
        if thread_is(JOB) && first.swap(false, Ordering::SeqCst) {
            theirs.pass();
        }
        Order::of(record)
    };
    let gate = Gate::new();
    let done = Arc::new(Mutex::new(Vec::new()));
    let (opened, seen) = (gate.clone(), Arc::clone(&done));
    let consumer = orders()
        .lane_capacity(8, Overflow::Wait)
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |order: Order| {
            let (gate, seen) = (opened.clone(), Arc::clone(&seen));
            async move {
                if order.key == 0 {
                    gate.pass().await;
                }
                seen.lock().unwrap().push(order.offset);
                Ok(())
            }
        }))
        .expect("a consumer");
    let source = stage.topic.builder().build_with(make).expect("a source");
    let settings = IntakeSettings::new()
        .held(400)
        .revoke_within(Duration::from_secs(1));
    let intake = consumer.consume_with(source, settings).expect("an intake");
    until("the others are done", async || {
        done.lock().unwrap().len() >= 300
    })
    .await;
    gate.open();
    until("the driver waits", async || bar.waiting() == 1).await;
    taken_out(&stage).await;
    bar.open();
    stage.publish((0..6).map(|n| n % 5)).await;
    stage.committed(&[606]).await;
    intake.stop().await;
    let mut all = done.lock().unwrap().clone();
    all.sort_unstable();
    all.dedup();
    let missing: Vec<_> = (0..606).filter(|at| !all.contains(at)).collect();
    assert!(missing.is_empty(), "{} missing: {missing:?}", missing.len());
}

/// A value that panics when it is dropped.
struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("in drop of a payload");
        }
    }
}

/// Otherwise the source would stop without an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_that_panics_when_it_is_dropped_does_not_end_the_thread() {
    let stage = Stage::new(1).await;
    stage.publish(0..50).await;
    let panics = AtomicBool::new(true);
    let make = move |record: &Record<'_>| {
        if record.place().offset == 20 && panics.swap(false, Ordering::Relaxed) {
            std::panic::panic_any(Bomb);
        }
        Order::of(record)
    };
    let consumer = orders()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: Order| async { Ok(()) }))
        .expect("a consumer");
    let source = stage.topic.builder().build_with(make).expect("a source");
    let settings = IntakeSettings::new().stall_after(Duration::from_secs(4));
    let intake = consumer.consume_with(source, settings).expect("an intake");
    stage.committed(&[50]).await;
    intake.stop().await;
}

/// All brokers answer meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_does_not_return_is_noticed() {
    let stage = Stage::new(1).await;
    stage.publish(0..50).await;
    let bar = Bar::shut();
    let theirs = bar.clone();
    let make = move |record: &Record<'_>| {
        if record.place().offset == 20 {
            theirs.pass();
        }
        Order::of(record)
    };
    let consumer = orders()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: Order| async { Ok(()) }))
        .expect("a consumer");
    let source = stage.topic.builder().build_with(make).expect("a source");
    let settings = IntakeSettings::new().stall_after(Duration::from_secs(2));
    let intake = consumer.consume_with(source, settings).expect("an intake");
    until("the function waits", async || bar.waiting() == 1).await;
    until("it is noticed", async || intake.stats().restarts > 0).await;
    bar.open();
    intake.stop().await;
}

/// The other members of the group do not wait for a function of the user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_leaves_the_group_though_a_message_is_being_made() {
    let stage = Stage::new(1).await;
    stage.publish(0..50).await;
    let bar = Bar::shut();
    let theirs = bar.clone();
    let make = move |record: &Record<'_>| {
        if record.place().offset == 20 {
            theirs.pass();
        }
        Order::of(record)
    };
    let consumer = orders()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: Order| async { Ok(()) }))
        .expect("a consumer");
    let source = stage.topic.builder().build_with(make).expect("a source");
    let intake = consumer.consume(source).expect("an intake");
    until("the function waits", async || bar.waiting() == 1).await;
    let stopped = tokio::spawn(intake.stop().into_future());
    until("it is in the group no more", async || {
        stage.topic.members().await.is_empty()
    })
    .await;
    assert_eq!(bar.waiting(), 1);
    bar.open();
    stopped.await.expect("no panic");
}

/// One key holds an eighth of the source's limit at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_one_key_does_not_fill_a_source_that_holds_few() {
    let stage = Stage::new(1).await;
    stage
        .publish((0..1_000).map(|_| 0).chain((0..100).map(|n| 1 + n % 5)))
        .await;
    let gate = Gate::new();
    let done = Arc::new(AtomicUsize::new(0));
    let (opened, theirs) = (gate.clone(), Arc::clone(&done));
    let consumer = orders()
        .lane_capacity(8, Overflow::Wait)
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |order: Order| {
            let (gate, done) = (opened.clone(), Arc::clone(&theirs));
            async move {
                if order.key == 0 {
                    gate.pass().await;
                }
                done.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        }))
        .expect("a consumer");
    let source = stage
        .topic
        .builder()
        .build_with(Order::of)
        .expect("a source");
    let intake = consumer
        .consume_with(source, IntakeSettings::new().held(100))
        .expect("an intake");
    until("the others are done", async || {
        done.load(Ordering::SeqCst) == 100
    })
    .await;
    gate.open();
    intake.stop().within(Duration::ZERO).await;
}
