//! Keys with more records than there is room for.

use std::collections::BTreeSet;

use keylane::consume::IntakeSettings;
use keylane_testkit::{Act, Evidence, Gate, Rule};
use tokio::time::Instant;

use crate::stage::{Member, Stage, id_of, until, waiting};

/// Half of the records belong to a key that stands still: many times as many as the source may
/// hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_stands_still_does_not_stop_the_others() {
    const EACH: u64 = 3_000;
    let stage = Stage::new(2).await;
    // The ids begin at 1, so those of the hot key are odd.
    let keys = (0..EACH).flat_map(|n| [0, 1 + n % 50]);
    stage.publish(keys).await;
    let gate = Gate::new();
    let script = waiting(&stage, &gate, |id| id % 2 == 1);
    let source = stage.topic.builder().build().expect("a source");
    let control = source.control();
    let settings = IntakeSettings::new().held(300);
    let member = Member::with(source, control, stage.consumer(script), settings);
    stage.handled(EACH as usize).await;
    let done = stage.done();
    let is_other = |id| id % 2 == 0;
    assert!(done.iter().filter_map(id_of).all(is_other));

    gate.open();
    stage.handled(2 * EACH as usize).await;
    stage.nothing_left().await;
    member.stop().await;
    let evidence = Evidence::new().quiescent(Instant::now());
    let verdict = stage.history.check(&evidence).expect("nothing is broken");
    verdict.assert_judged(&[Rule::NoLoss, Rule::Order, Rule::Exclusion]);
}

/// In other systems a failing key counts as load until the source is paused for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_never_ends_does_not_stop_the_intake() {
    let stage = Stage::new(1).await;
    let failing = stage.script().key(0, Act::error());
    let member = stage.member_with(failing);
    // Far more records of the key than there is room for.
    stage.publish((0..10_000).map(|_| 0)).await;
    let last = stage.publish(1..=100).await;
    stage.handled(100).await;
    let done: BTreeSet<_> = stage.done().iter().filter_map(id_of).collect();
    assert_eq!(done, BTreeSet::from_iter(last));
    until("the first one is halted", async || {
        member.consumer.stats().halted == 1
    })
    .await;
    stage.committed(&[0]).await;
    member.stop().await;
}
