//! A batch that cannot be read: its partition waits and reports it, and the others go on.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use keylane::consume::IntakeState;
use testkit_servers::Kafka;

use crate::logs::delete_records_below;
use crate::stage::{Stage, until};
use crate::support::{Topic, show_log};

/// The log of the partition on the disk of the only node.
fn log_file(stage: &Stage, partition: i32) -> PathBuf {
    let mut folders = vec![stage.topic.kafka.folder().to_owned()];
    let name = format!("{}-{partition}", stage.topic.name);
    while let Some(folder) = folders.pop() {
        if folder.ends_with(&name) {
            return folder.join("00000000000000000000.log");
        }
        let all = fs::read_dir(folder).expect("a folder");
        let all = all.map(|entry| entry.expect("an entry").path());
        folders.extend(all.filter(|path| path.is_dir()));
    }
    panic!("{name} has no log");
}

/// The length of the head of a batch.
const HEAD: usize = 61;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_cannot_be_read_holds_up_its_partition_alone() {
    show_log();
    let kafka = Arc::new(Kafka::start().await.expect("a broker"));
    let stage = Stage::of(Topic::with(kafka, 2, &[("compression.type", "gzip")]).await);
    stage.publish_to(Some(0), [1; 20]).await;
    let kafka = &stage.topic.kafka;
    kafka.stop(0).await.expect("it stops");
    let log = log_file(&stage, 0);
    let mut bytes = fs::read(&log).expect("a log");
    bytes[HEAD..].iter_mut().for_each(|byte| *byte ^= 0x5a);
    fs::write(&log, bytes).expect("a log");
    kafka.start_again(0).await.expect("it is there");

    let member = stage.member();
    stage.publish_to(Some(1), [2; 20]).await;
    stage.committed_of(1, 20).await;
    let name = format!("{}/0", stage.topic.name);
    until("the partition has failed", async || {
        let failed = member.intake.stats().failed_parts;
        failed.iter().any(|failed| failed.part == name)
    })
    .await;
    stage.publish_to(Some(0), [1; 20]).await;
    stage.publish_to(Some(1), [2; 20]).await;
    stage.committed_of(1, 40).await;
    let stats = member.intake.stats();
    assert_eq!(
        (stats.state, stats.restarts),
        (IntakeState::Running, 0),
        "{stats:?}"
    );
    let failure = member.status(0).and_then(|status| status.failure);
    assert_eq!(failure.expect("it is seen").why, stats.failed_parts[0].why);
    assert!(stage.offsets(0).is_empty());

    delete_records_below(&stage.topic, 20).await;
    stage.committed_of(0, 40).await;
    until("nothing fails", async || {
        member.intake.stats().failed_parts.is_empty()
    })
    .await;
    assert_eq!(stage.offsets(0), Vec::from_iter(20..40));
    member.stop().await;
}
