//! Records that are done beyond the committed offset: the metadata of the commit contains them, and
//! they are not handled again.

use std::collections::BTreeSet;

use keylane_kafka::{MetadataFull, metadata};
use keylane_testkit::{Act, Gate};

use crate::stage::{Member, Stage, id_of, until, waiting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_in_the_middle_leaves_nothing_to_be_done_again() {
    let stage = Stage::new(1).await;
    let gate = Gate::new();
    // One key waits, and holds the frontier at the first offset. The others go on.
    let waits: BTreeSet<u64> = [1, 2, 300, 301].into();
    let keys = (1..=1_000).map(|id| if waits.contains(&id) { 0 } else { id });
    stage.publish(keys).await;
    let held_back = waits.clone();
    let member = stage.member_with(waiting(&stage, &gate, move |id| held_back.contains(&id)));
    stage.handled(996).await;
    let is_said = async || {
        let (committed, text) = stage.topic.committed().await.remove(0);
        let beyond = metadata::decode(committed.unwrap_or_default(), &text).unwrap();
        committed == Some(0) && beyond.runs().eq([2..299, 301..1_000])
    };
    // Before the stop already: it may be a kill.
    until("what is done is committed", is_said).await;
    member.stop().await;
    assert!(is_said().await);
    assert_eq!(stage.offsets(0).len(), 996);
    let member = stage.member();
    stage.committed(&[1_000]).await;
    member.stop().await;
    assert_eq!(stage.offsets(0), Vec::from_iter(0..1_000));
    let ids: Vec<_> = stage.done().iter().filter_map(id_of).collect();
    assert_eq!(ids[996..], [1, 2, 300, 301]);
}

/// One in twenty records of partition 0 waits, and the first one: its metadata becomes long.
async fn full(policy: MetadataFull) -> (Stage, Gate, Member) {
    let stage = Stage::new(2).await;
    let (gate, others) = (Gate::new(), Gate::new());
    stage.publish_to(Some(0), 0..2_000).await;
    let (waits, passes) = (gate.clone(), others.clone());
    let script = stage.script().choose(move |cue| {
        let is_held_back = cue.id == 1 || cue.id % 20 == 0;
        Act::ok().waits(if is_held_back { &waits } else { &passes })
    });
    let builder = stage.topic.builder();
    let builder = builder.metadata_full(policy).metadata_chars(40);
    let member = stage.member_of(builder, script);
    // All of them are handed over before any settles: a full partition hands over no more.
    let are_here = || member.status(0).is_some_and(|status| status.end == 2_000);
    until("all are handed over", async || are_here()).await;
    others.open();
    (stage, gate, member)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_is_to_pause_takes_nothing_while_its_metadata_is_full() {
    let (stage, gate, member) = full(MetadataFull::Pause).await;
    let is_full = || member.status(0).is_some_and(|status| status.is_full);
    until("the partition is full", async || is_full()).await;
    stage.handled(1_899).await;
    // These stay in the log, while those of the other partition pass.
    stage.publish_to(Some(0), 3_000..3_010).await;
    stage.publish_to(Some(1), 4_000..4_005).await;
    stage.handled(1_899 + 5).await;
    stage.committed(&[0, 5]).await;
    assert!(is_full());
    assert_eq!(stage.offsets(0).last(), Some(&1_998));
    gate.open();
    stage.committed(&[2_010, 5]).await;
    member.stop().await;
    assert_eq!(stage.offsets(0), Vec::from_iter(0..2_010));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_may_repeat_goes_on_when_its_metadata_is_full() {
    let (stage, gate, member) = full(MetadataFull::Repeat).await;
    stage.handled(1_899).await;
    stage.publish_to(Some(0), 3_000..3_010).await;
    stage.handled(1_899 + 10).await;
    // The part that fits is committed.
    until("the metadata is full", async || {
        let (at, text) = stage.topic.committed().await.remove(0);
        at == Some(0) && (30..=40).contains(&text.len())
    })
    .await;
    assert!(!member.status(0).unwrap().is_full);
    gate.open();
    stage.committed(&[2_010, 0]).await;
    member.stop().await;
    assert_eq!(stage.offsets(0), Vec::from_iter(0..2_010));
}
