//! A server that goes back to an earlier state while its connections stay: a restored backup, an
//! empty database, another clock. Settlements of undone hand-outs must not touch the current
//! elements.

use std::time::Duration;

use keylane::source::{LetterCause, Outcome, Source, SourceLetter};
use keylane_redis::{ListBuilder, ListKey, ListQueue};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use testkit_servers::RedisKind;
use tokio::time::timeout;

use crate::crew::Crew;
use crate::direct::{Direct, payloads};
use crate::state::{beside, check, check_idle};
use crate::support::{builder, connect, new_name, own, shared};

/// All keys of a list.
struct Backup {
    keys: Vec<(String, Vec<u8>)>,
    list: String,
}

async fn keys(server: &mut MultiplexedConnection, list: &str) -> Vec<String> {
    let mut keys = cmd("KEYS");
    keys.arg(beside(list, "*"));
    let mut keys: Vec<String> = keys.query_async(server).await.unwrap();
    keys.push(list.to_owned());
    keys
}

impl Backup {
    async fn of(server: &mut MultiplexedConnection, list: &str) -> Self {
        let mut all = Vec::new();
        for key in keys(server, list).await {
            let dumped: Option<Vec<u8>> = cmd("DUMP").arg(&key).query_async(server).await.unwrap();
            all.extend(dumped.map(|dumped| (key, dumped)));
        }
        Self {
            keys: all,
            list: list.to_owned(),
        }
    }

    /// In one step.
    async fn put_back(&self, server: &mut MultiplexedConnection) {
        let now = keys(server, &self.list).await;
        let mut all = redis::pipe();
        all.atomic().cmd("DEL").arg(now).ignore();
        for (key, dumped) in &self.keys {
            all.cmd("RESTORE").arg(key).arg(0).arg(&dumped[..]).ignore();
        }
        all.exec_async(server).await.unwrap();
    }
}

fn keyed(url: &str, list: &str) -> ListBuilder {
    builder(url, list).key(ListKey::before(b":")).dead_letters()
}

async fn push(server: &mut MultiplexedConnection, list: &str, elements: &[&str]) {
    let mut push = cmd("LPUSH");
    push.arg(list).arg(elements);
    push.exec_async(server).await.unwrap();
}

/// Waits until the source sees that it has to be opened again.
async fn fails(worker: &mut Direct) -> String {
    let failed = async {
        loop {
            let until = tokio::time::Instant::now() + Duration::from_millis(100);
            let mut into = keylane::source::Deliveries::new(10, until);
            if let Err(error) = worker.0.receive(&mut into).await {
                return error.to_string();
            }
            assert!(into.is_empty(), "nothing comes before that");
        }
    };
    let failed = timeout(Duration::from_secs(30), failed).await;
    failed.expect("it is noticed")
}

/// The worker is idle before and after: only the number of its calls distinguishes the two states.
#[tokio::test]
async fn what_a_backup_has_again_comes_again() {
    let server = shared(RedisKind::Redis7).await;
    let (mut raw, list) = (connect(&server.url()).await, new_name("backup"));
    let queue = keyed(&server.url(), &list).build().unwrap();
    let mut worker = Direct::open(&queue).await;
    push(&mut raw, &list, &["a:1", "a:2", "b:1"]).await;
    let first = worker.receive_all(3).await;
    let backup = Backup::of(&mut raw, &list).await;
    worker.ack(&first).await;
    backup.put_back(&mut raw).await;
    let error = fails(&mut worker).await;
    assert!(error.contains("an earlier state"), "{error}");
    worker.0.open().await.unwrap();
    let again = worker.receive_all(3).await;
    assert_eq!(payloads(&again), [&b"a:1"[..], b"a:2", b"b:1"]);
    assert!(
        again[0].1.id().token() > first[2].1.id().token(),
        "tokens grow"
    );
    // This late settlement belongs to an undone hand-out.
    worker.settle(&first, Outcome::Done).await;
    worker.0.confirm().await.unwrap();
    check(&mut raw, &list).await;
    assert_eq!(queue.status().await.unwrap().workers[0].held, 3);
    worker.ack(&again).await;
    worker.0.close().await.unwrap();
    check_idle(&mut raw, &list).await;
}

/// A letter that is counted exists.
#[tokio::test]
async fn a_letter_of_what_is_not_there_is_refused() {
    let server = shared(RedisKind::Redis7).await;
    let (mut raw, list) = (connect(&server.url()).await, new_name("no-letter"));
    let queue = keyed(&server.url(), &list)
        .lease(Duration::from_secs(60))
        .build()
        .unwrap();
    let mut worker = Direct::open(&queue).await;
    let backup = Backup::of(&mut raw, &list).await;
    push(&mut raw, &list, &["a:1", "a:2"]).await;
    let handed = worker.receive_all(2).await;
    let letter = |at: usize| {
        let position = handed[at].1.clone();
        SourceLetter::new(position, 1, LetterCause::Failed, "no".to_owned())
    };
    worker.0.dead_letter(letter(0)).await.unwrap();
    // Its answer was lost.
    worker.0.dead_letter(letter(0)).await.unwrap();
    assert_eq!(queue.letters(10).await.unwrap().len(), 1);
    worker.settle(&handed[..1], Outcome::DeadLettered).await;
    worker.0.confirm().await.unwrap();
    check(&mut raw, &list).await;
    backup.put_back(&mut raw).await;
    worker.0.dead_letter(letter(1)).await.unwrap_err();
    assert_eq!(queue.letters(10).await.unwrap(), []);
    fails(&mut worker).await;
    worker.0.open().await.unwrap();
    worker.0.close().await.unwrap();
    check_idle(&mut raw, &list).await;
}

/// Everything is deleted, and the clock is behind the earlier one: tokens would repeat.
#[tokio::test]
async fn what_is_new_after_a_flush_is_not_touched() {
    let server = own(RedisKind::Redis8).await;
    let (mut raw, list) = (connect(&server.url()).await, new_name("flush"));
    let queue = keyed(&server.url(), &list).build().unwrap();
    let mut worker = Direct::open(&queue).await;
    // Like a clock that is an hour ahead.
    let hour = 3_600_000_000_u64;
    let last: u64 = cmd("GET")
        .arg(beside(&list, "token"))
        .query_async(&mut raw)
        .await
        .unwrap_or(0);
    let ahead = last.max(now_micros(&mut raw).await) + hour;
    let set = ["SET", &beside(&list, "token"), &ahead.to_string()];
    server.execute(&set).await.unwrap();
    push(&mut raw, &list, &["a:1", "a:2"]).await;
    let old = worker.receive_all(2).await;
    server.execute(&["FLUSHALL"]).await.unwrap();
    push(&mut raw, &list, &["a:3", "a:4"]).await;
    let error = fails(&mut worker).await;
    assert!(error.contains("an earlier state"), "{error}");
    let guard = worker.0.start_guard().unwrap();
    worker.0.open().await.unwrap();
    assert!(
        !guard.holds(&old[0].1),
        "attempts at what was there before are dropped"
    );
    let new = worker.receive_all(2).await;
    assert_eq!(payloads(&new), [b"a:3", b"a:4"]);
    assert!(new[0].1.id().token() > old[1].1.id().token(), "tokens grow");
    assert!(guard.holds(&new[0].1));
    worker.settle(&old, Outcome::Done).await;
    worker.0.confirm().await.unwrap();
    assert_eq!(queue.status().await.unwrap().workers[0].held, 2);
    worker.ack(&new).await;
    worker.0.close().await.unwrap();
    check_idle(&mut raw, &list).await;
}

async fn now_micros(server: &mut MultiplexedConnection) -> u64 {
    let (seconds, micros): (u64, u64) = cmd("TIME").query_async(server).await.unwrap();
    seconds * 1_000_000 + micros
}

/// A script uses the time only together with the data in the server: after a step of an hour,
/// forward or back, all data there is an hour older, or newer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_stops_nothing() {
    let server = own(RedisKind::Redis7).await;
    let list = new_name("clock");
    let queue: ListQueue = builder(&server.url(), &list).build().unwrap();
    let mut crew = Crew::new(&list, queue.clone(), 20).await;
    for _ in 0..3 {
        crew.join(&queue);
    }
    let mut raw = connect(&server.url()).await;
    for hours in [1, -1, 1, 1, -1] {
        crew.progress(100).await;
        crew.all_work().await;
        // The last token is never behind those that were handed out.
        let step = r"
            local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
            for at = 1, #all, 2 do
              redis.call('ZADD', KEYS[1], all[at + 1] - ARGV[1] * 3600000, all[at])
            end
            local ahead = math.max(0, -ARGV[1]) * 3600000000
            redis.call('SET', KEYS[2], string.format('%.0f', redis.call('GET', KEYS[2]) + ahead))
        ";
        let mut shift = cmd("EVAL");
        shift
            .arg(step)
            .arg(2)
            .arg(beside(&list, "workers"))
            .arg(beside(&list, "token"))
            .arg(hours);
        shift.exec_async(&mut raw).await.unwrap();
    }
    crew.progress(100).await;
    let mut story = crew.finish(&server.url()).await;
    story.may_repeat = true;
    println!("clock steps: {}", story.judge());
}
