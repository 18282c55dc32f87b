//! Kafka: what the databases do too, proxies in front of its nodes, and a cluster that loses one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use testkit_servers::{Kafka, ServerError};
use tokio::time::Instant;

use crate::killed::{self, State};
use crate::processes::{await_end, is_dead, refuses, state};

async fn start() -> Kafka {
    Kafka::start().await.unwrap()
}

/// The port of the first node among such addresses.
fn port(addresses: &str) -> u16 {
    let first = addresses.split(',').next().unwrap();
    first.strip_prefix("127.0.0.1:").unwrap().parse().unwrap()
}

/// Whether a server answers the question for the versions that it speaks, within half a second.
fn answers(port: u16) -> bool {
    let asked = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_millis(500)))?;
        // Its length, the request 18 in version 0, number 7, of a client without a name.
        stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 255, 255])?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    asked().is_ok_and(|answer| answer[4..] == [0, 0, 0, 7])
}

async fn create_topic(kafka: &Kafka, name: &str) {
    let at = kafka.bootstrap();
    let args = ["--bootstrap-server", &at, "--create", "--topic", name];
    let class = "org.apache.kafka.tools.TopicCommand";
    kafka.tool(class, args, "").await.unwrap();
}

/// Returns when all replicas that count have the records, one for each line.
async fn write(kafka: &Kafka, at: &str, topic: &str, records: &str) {
    let args = ["--bootstrap-server", at, "--topic", topic, "--sync"];
    let class = "org.apache.kafka.tools.ConsoleProducer";
    kafka.tool(class, args, records).await.unwrap();
}

/// So many records from the beginning, one on each line.
async fn read(kafka: &Kafka, topic: &str, count: usize) -> String {
    let (at, count) = (kafka.bootstrap(), count.to_string());
    let args = ["--bootstrap-server", &at, "--topic", topic];
    let all = ["--from-beginning", "--max-messages", &count];
    let class = "org.apache.kafka.tools.consumer.ConsoleConsumer";
    let args = args.into_iter().chain(all);
    kafka.tool(class, args, "").await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn keeps_what_was_written() {
    let clock = Instant::now();
    let kafka = start().await;
    let (bootstrap, proxied) = (kafka.bootstrap(), kafka.proxied());
    create_topic(&kafka, "orders").await;
    let record = format!("{}\n", "7".repeat(10_000));
    write(&kafka, &proxied, "orders", &record).await;
    let traffic = kafka.proxy(0).traffic();
    assert!(traffic.to_server > 10_000, "not through the proxy");

    let pid = kafka.pid(0).unwrap();
    kafka.kill(0).await.unwrap();
    assert!(is_dead(pid) && kafka.pid(0).is_none());
    assert!(refuses(port(&bootstrap)));
    kafka.kill(0).await.unwrap(); // does nothing
    let paused = kafka.pause(0).await;
    assert!(matches!(paused, Err(ServerError::NotRunning)), "{paused:?}");

    kafka.start_again(0).await.unwrap();
    assert_eq!(read(&kafka, "orders", 1).await, record);
    let again = kafka.start_again(0).await;
    assert!(matches!(again, Err(ServerError::Running)), "{again:?}");

    kafka.stop(0).await.unwrap();
    assert!(kafka.pid(0).is_none() && refuses(port(&bootstrap)));
    kafka.stop(0).await.unwrap(); // does nothing
    kafka.start_again(0).await.unwrap();
    assert!(answers(port(&bootstrap)) && answers(port(&proxied)));
    assert_eq!((kafka.bootstrap(), kafka.proxied()), (bootstrap, proxied));
    assert_eq!(
        clock.elapsed(),
        Duration::ZERO,
        "the clock of the test ran on"
    );
}

#[tokio::test]
async fn hangs_while_it_is_paused_and_where_it_is_cut_off() {
    let kafka = start().await;
    let (direct, proxied) = (port(&kafka.bootstrap()), port(&kafka.proxied()));
    assert!(answers(direct) && answers(proxied));
    kafka.proxy(0).cut();
    assert!(answers(direct) && !answers(proxied));
    kafka.proxy(0).heal();
    assert!(answers(proxied));

    kafka.pause(0).await.unwrap();
    let pid = kafka.pid(0).unwrap();
    assert_eq!(state(pid), Some('T'));
    assert!(!answers(direct) && !answers(proxied));
    kafka.resume(0).await.unwrap();
    assert!(answers(direct) && answers(proxied));

    // It can be stopped and killed all the same.
    kafka.pause(0).await.unwrap();
    kafka.stop(0).await.unwrap();
    assert!(is_dead(pid));
    kafka.start_again(0).await.unwrap();
    kafka.pause(0).await.unwrap();
    kafka.kill(0).await.unwrap();
    assert_eq!(kafka.pid(0), None);
}

#[tokio::test]
async fn shares_nothing_and_leaves_nothing() {
    let (one, two) = tokio::join!(start(), start());
    assert_ne!(one.bootstrap(), two.bootstrap());
    assert!(one.log(0).contains("Kafka Server started"));
    let (pid, folder) = (one.pid(0).unwrap(), one.folder().to_owned());
    let (direct, proxied) = (port(&one.bootstrap()), port(&one.proxied()));
    assert!(folder.is_dir());
    drop(one);
    assert!(is_dead(pid) && !folder.exists());
    assert!(refuses(direct));
    await_end(&[pid], proxied, &folder);
    assert!(answers(port(&two.bootstrap())));
}

#[tokio::test]
async fn a_wrong_property_is_named() {
    let wrong = Kafka::builder().property("num.io.threads", "many");
    let error = wrong.start().await.unwrap_err().to_string();
    assert!(error.contains("num.io.threads"), "{error}");
}

#[tokio::test]
async fn a_cluster_outlives_a_node() {
    let kafka = Kafka::cluster(3).await.unwrap();
    assert_eq!(kafka.nodes(), 3);
    assert_eq!(kafka.proxied().split(',').count(), 3);
    create_topic(&kafka, "orders").await;
    write(&kafka, &kafka.bootstrap(), "orders", "before\n").await;

    kafka.kill(0).await.unwrap();
    write(&kafka, &kafka.proxied(), "orders", "after\n").await;
    assert_eq!(read(&kafka, "orders", 2).await, "before\nafter\n");
    kafka.start_again(0).await.unwrap();

    let pids: Vec<_> = (0..3).map(|node| kafka.pid(node).unwrap()).collect();
    let folder = kafka.folder().to_owned();
    drop(kafka);
    assert!(pids.iter().all(|pid| is_dead(*pid)) && !folder.exists());
}

#[test]
fn dies_with_a_killed_test() {
    killed::outlived_by_nothing(concat!(module_path!(), "::child"), State::Running);
}

#[test]
fn dies_with_a_killed_test_while_it_is_paused() {
    killed::outlived_by_nothing(concat!(module_path!(), "::child"), State::Paused);
}

/// The test that is killed. It does nothing when it is not started by one of those above.
#[tokio::test]
async fn child() {
    let Some(state) = killed::state() else { return };
    let kafka = start().await;
    if state == State::Paused {
        kafka.pause(0).await.unwrap();
    }
    let folder = Path::new(kafka.folder()).to_str().unwrap();
    killed::report(kafka.pid(0).unwrap(), port(&kafka.bootstrap()), folder);
    std::future::pending::<()>().await;
}
