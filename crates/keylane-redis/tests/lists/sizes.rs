//! One answer has a limit in bytes, however many elements a worker holds: the server closes the
//! connection of a client that would receive more.

use std::sync::Arc;
use std::time::Duration;

use keylane::source::{Deliveries, LetterCause, Outcome, Source, SourceLetter};
use keylane_redis::{ListKey, ListQueue, Redis};
use redis::cmd;
use testkit_servers::RedisKind;
use tokio::time::Instant;

use crate::direct::{Direct, payloads};
use crate::state::{check, check_idle};
use crate::support::{connect, new_name, own};

const COUNT: usize = 80;

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// 40 MB of elements at one worker, on a server that sends 8 MiB at most.
struct Much {
    _server: Arc<testkit_servers::Redis>,
    raw: redis::aio::MultiplexedConnection,
    list: String,
    queue: ListQueue,
    worker: Direct,
    elements: Vec<Vec<u8>>,
}

impl Much {
    async fn new(what: &str) -> Self {
        let server = own(RedisKind::Redis7).await;
        let list = new_name(what);
        let limit = [
            "CONFIG",
            "SET",
            "client-output-buffer-limit",
            "normal 8388608 8388608 0",
        ];
        server.execute(&limit).await.unwrap();
        // Tens of megabytes in one step may take a busy disk longer than the default.
        let redis = Redis::at(&server.url()).unwrap().response_timeout(PATIENCE);
        let builder = ListQueue::builder(&redis, list.clone()).key(ListKey::before(b":"));
        let queue = builder
            .lease(Duration::from_secs(60))
            .dead_letters()
            .build()
            .unwrap();
        let mut raw = connect(&server.url()).await;
        let elements: Vec<_> = (0..COUNT)
            .map(|n| format!("a:{n}:{}", "x".repeat(500_000)).into_bytes())
            .collect();
        for element in &elements {
            let mut push = cmd("LPUSH");
            push.arg(&list).arg(element);
            push.exec_async(&mut raw).await.unwrap();
        }
        let worker = Direct::open(&queue).await;
        Self {
            _server: server,
            raw,
            list,
            queue,
            worker,
            elements,
        }
    }

    async fn ends(mut self) {
        check(&mut self.raw, &self.list).await;
        let all = self.worker.receive_all(COUNT).await;
        assert!(
            payloads(&all) == self.elements,
            "all of them, in their order"
        );
        self.worker.ack(&all).await;
        self.worker.0.close().await.unwrap();
        check_idle(&mut self.raw, &self.list).await;
    }
}

#[tokio::test]
async fn much_that_a_worker_had_comes_again_in_parts() {
    let mut much = Much::new("enters").await;
    much.worker.receive_all(COUNT).await;
    much.worker.0.open().await.unwrap();
    // In the middle of them.
    let some = much.worker.receive_all(COUNT / 2).await;
    assert!(payloads(&some) == much.elements[..COUNT / 2]);
    much.worker.0.open().await.unwrap();
    much.ends().await;
}

#[tokio::test]
async fn much_that_was_given_back_comes_again_in_parts() {
    let mut much = Much::new("returns").await;
    let all = much.worker.receive_all(COUNT).await;
    much.worker.settle(&all, Outcome::returned(1)).await;
    much.ends().await;
}

#[tokio::test]
async fn much_is_read_again_in_parts() {
    let mut much = Much::new("rereads").await;
    let all = much.worker.receive_all(COUNT).await;
    let positions: Vec<_> = all.iter().map(|(_, position)| position.clone()).collect();
    let mut into = Deliveries::new(COUNT, Instant::now() + Duration::from_secs(5));
    much.worker.0.reread(&positions, &mut into).await.unwrap();
    let read = into
        .take()
        .into_iter()
        .map(|one| (one.message, one.position));
    assert!(payloads(&read.collect::<Vec<_>>()) == much.elements);
    much.worker.0.open().await.unwrap();
    much.ends().await;
}

#[tokio::test]
async fn many_letters_are_read_in_parts() {
    let mut much = Much::new("letters").await;
    let all = much.worker.receive_all(COUNT).await;
    for (_, position) in &all {
        let why = ("no".to_owned(), LetterCause::Failed);
        let letter = SourceLetter::new(position.clone(), 1, why.1, why.0);
        much.worker.0.dead_letter(letter).await.unwrap();
    }
    much.worker.settle(&all, Outcome::DeadLettered).await;
    much.worker.0.confirm().await.unwrap();
    let letters = much.queue.letters(1_000).await.unwrap();
    assert!(
        letters
            .iter()
            .map(|letter| &letter.payload[..])
            .eq(much.elements.iter())
    );
    assert_eq!(much.queue.redrive(1_000).await.unwrap(), COUNT as u64);
    much.ends().await;
}
