//! The application's view of its partitions, and its controls.

use keylane_testkit::Gate;

use crate::stage::{Member, Stage, id_of, until, waiting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_says_how_far_a_partition_is() {
    let stage = Stage::new(1).await;
    let gate = Gate::new();
    stage.publish(0..10).await;
    // The ids begin at 1, the offsets at 0.
    let member = stage.member_with(waiting(&stage, &gate, |id| [5, 8].contains(&id)));
    let expected = |status: &keylane_kafka::PartitionStatus| {
        (status.position, status.committed, status.end) == (4, Some(4), 10)
            && (status.open, status.beyond) == (2, 4)
            && (status.log_end, status.lag()) == (Some(10), Some(6))
            && !status.is_paused
            && !status.is_full
    };
    until("the status says what waits", async || {
        member.status(0).as_ref().is_some_and(expected)
    })
    .await;
    gate.open();
    until("the status says that all is done", async || {
        member.status(0).is_some_and(|status| {
            (status.position, status.committed) == (10, Some(10))
                && (status.open, status.beyond) == (0, 0)
                && status.lag() == Some(0)
        })
    })
    .await;
    let control = member.control.clone();
    member.stop().await;
    assert_eq!(control.partitions(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_partition_hands_over_nothing_and_the_others_go_on() {
    let stage = Stage::new(2).await;
    let member = stage.member();
    member.has(2).await;
    member.control.pause(&stage.topic.name, 0);
    until("it is paused", async || {
        member.status(0).is_some_and(|status| status.is_paused)
    })
    .await;
    let held = stage.publish_to(Some(0), 0..50).await;
    let free = stage.publish_to(Some(1), 50..100).await;
    stage.handled(50).await;
    stage.committed_of(1, 50).await;
    let ids: Vec<_> = stage.done().iter().filter_map(id_of).collect();
    assert!(ids.iter().all(|id| free.contains(id)), "{ids:?}");
    assert_eq!(member.status(0).unwrap().end, 0);
    member.control.resume(&stage.topic.name, 0);
    stage.committed(&[50, 50]).await;
    member.stop().await;
    assert_eq!(stage.done().len(), held.len() + free.len());
}

/// Before the source has the partition, and across a rebalance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_until_it_is_taken_back() {
    let stage = Stage::new(1).await;
    stage.publish([1; 5]).await;
    let source = stage.topic.builder().build().expect("a source");
    let control = source.control();
    control.pause(&stage.topic.name, 0);
    let consumer = stage.consumer(stage.script());
    let member = Member::new(source, control, consumer);
    let is_paused = async || {
        let status = member.status(0);
        status.is_some_and(|status| status.is_paused && status.end == 0)
    };
    until("it is paused", is_paused).await;
    // The source loses the partition, and gets it again.
    let before = stage.topic.members().await;
    stage.topic.expel().await;
    until("it is in the group again", async || {
        let now = stage.topic.members().await;
        now.len() == 1 && now != before
    })
    .await;
    until("it is paused", is_paused).await;
    assert_eq!(stage.done().len(), 0);
    member.control.resume(&stage.topic.name, 0);
    stage.committed(&[5]).await;
    member.stop().await;
}
