//! A topic with three copies, of which two are enough, and what happens to its brokers.

use std::time::Duration;

use keylane_testkit::scenario::{Random, repeats, until_async as until};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use testkit_processes::Verdict;
use testkit_servers::Kafka;
use tokio::time::sleep;

use crate::worker::{show_log, trial};

pub(crate) const TOPIC: &str = "orders";
const PARTITIONS: i32 = 6;
const NODES: usize = 3;

/// How long a broker stands still: the others go on without it.
const PAUSE: Duration = Duration::from_secs(5);

/// How often something happens to a broker: three times unless set.
fn faults() -> u64 {
    repeats("KEYLANE_FAILOVERS", 3)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `cargo xtask soak --clusters`"]
async fn a_group_outlives_its_brokers() {
    let verdict = tried(faults()).await;
    println!("measured: Kafka, three brokers: {verdict}");
    verdict.assert_nothing_lost();
}

/// A broker is killed, then the active controller, then one stands still, then one is restarted.
async fn tried(faults: u64) -> Verdict {
    show_log();
    let kafka = Kafka::cluster(NODES).await.expect("brokers");
    let brokers = kafka.bootstrap();
    create(&brokers).await;
    let mut trial = trial(&brokers);
    trial.goes_on().await;
    let mut random = Random::new(9);
    for number in 0..faults as usize {
        let any = random.below(NODES as u64) as usize;
        match number % 4 {
            0 => {
                trial.fault();
                kafka.kill(any).await.expect("it is killed");
                trial.goes_on().await;
                kafka.start_again(any).await.expect("it starts");
            }
            1 => {
                let controller = controller(&kafka).await;
                trial.fault();
                kafka.kill(controller).await.expect("it is killed");
                trial.kill_worker(number + 1);
                trial.goes_on().await;
                kafka.start_again(controller).await.expect("it starts");
            }
            2 => {
                trial.fault();
                kafka.pause(any).await.expect("it stands still");
                sleep(PAUSE).await;
                trial.goes_on().await;
                kafka.resume(any).await.expect("it goes on");
            }
            _ => {
                trial.fault();
                kafka.stop(any).await.expect("it stops");
                kafka.start_again(any).await.expect("it starts");
                trial.goes_on().await;
            }
        }
        trial.kill_worker(number);
        is_whole(&brokers).await;
    }
    trial.end().await
}

fn client(brokers: &str) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", brokers);
    client
}

async fn create(brokers: &str) {
    let admin: AdminClient<DefaultClientContext> = client(brokers).create().expect("a client");
    let copies = TopicReplication::Fixed(NODES as i32);
    let topic = NewTopic::new(TOPIC, PARTITIONS, copies);
    let made = admin.create_topics(&[topic], &AdminOptions::new()).await;
    made.expect("a topic").remove(0).expect("a topic");
    is_whole(brokers).await;
}

/// Waits until each partition has all its copies.
async fn is_whole(brokers: &str) {
    until("each partition has all its copies", async || {
        let client = client(brokers);
        let copies = tokio::task::spawn_blocking(move || {
            let client: BaseConsumer = client.create().expect("a client");
            let metadata = client.fetch_metadata(Some(TOPIC), Duration::from_secs(5));
            let metadata = metadata.ok()?;
            let topic = metadata.topics().first()?;
            let copies = topic.partitions().iter().map(|one| one.isr().len());
            Some((topic.partitions().len(), copies.sum::<usize>()))
        });
        let partitions = PARTITIONS as usize;
        copies.await.expect("no panic") == Some((partitions, partitions * NODES))
    })
    .await;
}

/// The broker that is the active controller.
async fn controller(kafka: &Kafka) -> usize {
    let servers = kafka.bootstrap();
    let args = ["--bootstrap-server", &servers, "describe", "--status"];
    let class = "org.apache.kafka.tools.MetadataQuorumCommand";
    let status = kafka.tool(class, args, "").await.expect("a status");
    let leader = status
        .lines()
        .find_map(|line| line.strip_prefix("LeaderId:"));
    leader
        .and_then(|id| id.trim().parse().ok())
        .expect("a leader")
}
