//! Programs on Redis.

use testkit_servers::{Redis, RedisKind};

use crate::program::{Program, Signal, program};

const ORDER: &str = r#"{"user": "ada", "cents": 250}"#;

async fn server() -> Redis {
    Redis::start(RedisKind::Redis8).await.unwrap()
}

#[tokio::test]
async fn a_list_is_consumed_and_its_letters_are_shown() {
    let server = server().await;
    let url = server.url();
    server.execute(&["LPUSH", "orders", ORDER]).await.unwrap();
    server
        .execute(&["LPUSH", "orders", r#"{"user": "bob"}"#])
        .await
        .unwrap();
    let produced = Program::start(program!("produce"), ("REDIS", &url));
    assert!(produced.ended().await.contains("it is in orders:2"));
    let mut list = Program::start(program!("list"), ("REDIS", &url));
    list.until("ada pays 250 cents").await;
    let said = list.stop().await;
    assert_eq!(said.matches("ada pays").count(), 2, "{said}");
    assert!(said.contains("dead letter"), "{said}");
}

#[tokio::test]
async fn streams_are_consumed() {
    let server = server().await;
    let url = server.url();
    let add = ["XADD", "orders:2", "*", "key", "ada", "payload", ORDER];
    server.execute(&add).await.unwrap();
    // In the wrong place.
    server
        .execute(&["XADD", "orders", "*", "key", "ada"])
        .await
        .unwrap();
    let mut stream = Program::start(program!("stream"), ("REDIS", &url));
    stream.until("ada pays 250 cents").await;
    stream.until("nothing reads them").await;
    stream.stop().await;
}

#[tokio::test]
async fn two_processes_share_leases() {
    let server = server().await;
    let url = server.url();
    let start = || Program::start(program!("leases"), ("REDIS", &url));
    let both = [start(), start()];
    for process in both {
        let said = process.ended().await;
        assert_eq!(said.matches("works under token").count(), 9, "{said}");
        assert!(said.contains("9 accepted = 9 done"), "{said}");
    }
}

#[tokio::test]
async fn groups_are_consumed() {
    let server = server().await;
    let job = r#"{"group": "customer-7", "what": "invoice 12"}"#;
    server.execute(&["LPUSH", "jobs", job]).await.unwrap();
    let mut groups = Program::start(program!("groups"), ("REDIS", &server.url()));
    groups.until("invoice 12").await;
    groups.stop().await;
}

#[tokio::test]
async fn a_service_manager_ends_a_consumer() {
    let server = server().await;
    server.execute(&["LPUSH", "orders", ORDER]).await.unwrap();
    let mut deploy = Program::start(program!("deploy"), ("REDIS", &server.url()));
    deploy.until("cents").await;
    deploy.signal(Signal::Terminate).await;
    let said = deploy.ended().await;
    assert!(said.contains("1 received = 1 acked"), "{said}");
}

#[tokio::test]
async fn jobs_of_sidekiq_are_consumed() {
    let server = server().await;
    let job = r#"{"class": "BillJob", "args": [7, 250], "jid": "b4a5", "key": "account-7"}"#;
    server
        .execute(&["LPUSH", "queue:default", job])
        .await
        .unwrap();
    let mut jobs = Program::start(program!("sidekiq"), ("REDIS", &server.url()));
    jobs.until("bill [Number(7), Number(250)]").await;
    let said = jobs.stop().await;
    assert!(said.contains("1 received = 1 acked"), "{said}");
}
