//! Programs on Kafka.

use testkit_servers::Kafka;

use crate::program::{Program, program};

#[tokio::test]
async fn json_is_consumed_and_letters_go_back() {
    let kafka = Kafka::builder().property("auto.create.topics.enable", "true");
    let kafka = kafka.start().await.unwrap();
    let brokers = kafka.bootstrap();
    let start = |path| Program::start(path, ("KAFKA", &brokers));
    start(program!("kafka_produce")).ended().await;
    let mut consumer = start(program!("kafka_json"));
    consumer.until("ada pays 250 cents").await;
    consumer.until("bob pays 99 cents").await;
    let said = consumer.stop().await;
    assert!(
        said.contains("4 received = 2 acked + 2 dead-lettered"),
        "{said}"
    );
    let said = start(program!("kafka_redrive")).ended().await;
    assert!(said.contains("2 letters went back"), "{said}");
}
