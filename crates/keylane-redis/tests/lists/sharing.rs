//! Several workers on one list: they come and go, lose their elements, and die with many of them.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use keylane::source::{Deliveries, Outcome, RawMessage, Settlement, Source};
use keylane_redis::{ListKey, ListPosition, ListQueue, ListSource, Redis};
use keylane_testkit::scenario::Random;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cmd;
use testkit_servers::{RedisCluster, RedisKind};
use tokio::time::{Instant, timeout};

use crate::crew::{self, Crew, message};
use crate::sink::Place;
use crate::state::{beside, check, check_idle};
use crate::story::Fault;
use crate::support::{builder, connect, new_name, own, shared, until};

/// Returns the elements of all workers: all that can come again when one of them is expelled.
async fn names(server: &mut impl ConnectionLike, list: &str) -> Vec<String> {
    let mut range = cmd("ZRANGE");
    range.arg(beside(list, "workers")).arg(0).arg(-1);
    range.query_async(server).await.unwrap()
}

/// Takes the elements of a worker without its knowledge. Returns the ids.
async fn expel(
    server: &mut MultiplexedConnection,
    queue: &ListQueue,
    list: &str,
    name: &str,
) -> HashSet<u64> {
    let mut take = redis::pipe();
    take.atomic();
    take.cmd("ZADD")
        .arg(beside(list, "workers"))
        .arg("XX")
        .arg(0)
        .arg(name)
        .ignore();
    take.cmd("HVALS").arg(beside(list, &format!("work:{name}")));
    let (elements,): (Vec<Vec<u8>>,) = take.query_async(server).await.unwrap();
    // It may have renewed its lease, and keeps its elements.
    queue.return_expired().await.unwrap();
    let ids = elements.iter().map(|element| {
        let id = element.last_chunk().unwrap();
        u64::from_be_bytes(*id)
    });
    ids.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_come_and_go_and_are_expelled() {
    for (kind, seed) in [(RedisKind::Redis8, 1), (RedisKind::Valkey9, 2)] {
        let server = shared(kind).await;
        let list = new_name("crew");
        // Only workers that are expelled lose their elements.
        let queue = builder(&server.url(), &list).lease(Duration::from_secs(20));
        let queue = queue.build().unwrap();
        let mut raw = connect(&server.url()).await;
        let mut crew = Crew::new(&list, queue.clone(), 30).await;
        for _ in 0..4 {
            crew.join(&queue);
        }
        let mut random = Random::new(seed);
        let mut faults = Vec::new();
        let (mut left, mut expelled) = (0, 0);
        for _ in 0..40 {
            crew.progress(random.below(15) as usize).await;
            match random.below(8) {
                0 if crew.workers.len() < 6 => crew.join(&queue),
                1 if crew.workers.len() > 2 => {
                    let at = random.below(crew.workers.len() as u64) as usize;
                    let leaving = crew.workers.swap_remove(at);
                    let report = leaving.stop().within(Duration::ZERO).await;
                    assert_eq!(
                        report.received,
                        report.acked + report.given_back,
                        "{report}"
                    );
                    left += 1;
                }
                _ => {
                    let names = names(&mut raw, &list).await;
                    if names.is_empty() {
                        continue;
                    }
                    let name = &names[random.below(names.len() as u64) as usize];
                    let held = expel(&mut raw, &queue, &list, name).await;
                    faults.push(Fault {
                        place: Place::MAX,
                        worker: None,
                        held,
                    });
                    expelled += 1;
                }
            }
            check(&mut raw, &list).await;
        }
        let mut story = crew.finish(&server.url()).await;
        story.faults = faults;
        println!(
            "{kind}: {expelled} expelled, {left} left: {}",
            story.judge()
        );
    }
}

/// A source that the test drives itself.
struct Worker(ListSource);

type Handed = Vec<(RawMessage, ListPosition)>;

impl Worker {
    async fn open(queue: &ListQueue) -> Self {
        let mut source = queue.source();
        source.open().await.unwrap();
        Self(source)
    }

    async fn receive(&mut self, count: usize) -> Handed {
        let mut all = Handed::new();
        while all.len() < count {
            let until = Instant::now() + Duration::from_secs(30);
            let mut into = Deliveries::new(count - all.len(), until);
            let received = timeout(Duration::from_secs(60), self.0.receive(&mut into)).await;
            received.expect("in time").expect("the source is well");
            let handed = into.take().into_iter();
            all.extend(handed.map(|delivery| (delivery.message, delivery.position)));
        }
        all
    }

    async fn settle(&mut self, handed: &[(RawMessage, ListPosition)]) {
        let settled: Vec<_> = handed
            .iter()
            .map(|(_, position)| Settlement::new(position.clone(), Outcome::Done))
            .collect();
        self.0.settle(&settled).await.unwrap();
    }

    async fn ack(&mut self, handed: &[(RawMessage, ListPosition)]) {
        self.settle(handed).await;
        let confirmed = timeout(Duration::from_secs(60), self.0.confirm()).await;
        confirmed.expect("in time").unwrap();
    }
}

fn ids(handed: &[(RawMessage, ListPosition)]) -> Vec<u64> {
    handed
        .iter()
        .map(|(message, _)| crew::read(message).1)
        .collect()
}

/// Returns all data of a list in the server.
async fn all_of(server: &mut MultiplexedConnection, list: &str) -> Vec<(String, String)> {
    let mut keys = cmd("KEYS");
    keys.arg(beside(list, "*"));
    let mut keys: Vec<String> = keys.query_async(server).await.unwrap();
    keys.push(list.to_owned());
    keys.sort();
    let mut all = Vec::new();
    for key in keys {
        // The lease of a live worker is renewed.
        if key.ends_with(":workers") {
            continue;
        }
        let mut dump = cmd("DUMP");
        dump.arg(&key);
        let dump: Option<Vec<u8>> = dump.query_async(server).await.unwrap();
        all.push((key, format!("{dump:?}")));
    }
    all
}

/// Two workers watch over the leases, and a worker comes late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_late_worker_says_changes_nothing() {
    let server = shared(RedisKind::Redis7).await;
    let list = new_name("late");
    let builder = builder(&server.url(), &list).lease(Duration::from_secs(60));
    let queue = builder.exact_starts().build().unwrap();
    let mut raw = connect(&server.url()).await;
    let messages: Vec<_> = (1..=60).map(|id| message(id % 5, id)).collect();
    queue.push_all(&messages).await.unwrap();
    let mut tokens = HashSet::new();
    for round in 0..10 {
        let mut late = Worker::open(&queue).await;
        let handed = late.receive(60).await;
        assert_eq!(ids(&handed), Vec::from_iter(1..=60), "round {round}");
        for (_, position) in &handed {
            assert!(tokens.insert(position.id().token()), "{position:?} twice");
        }
        let name = names(&mut raw, &list).await.remove(0);
        let mut expire = cmd("ZADD");
        expire.arg(beside(&list, "workers")).arg(0).arg(&name);
        expire.exec_async(&mut raw).await.unwrap();
        let other = queue.clone();
        let (one, two) = tokio::join!(queue.return_expired(), other.return_expired());
        assert_eq!(one.unwrap() + two.unwrap(), 60);
        check(&mut raw, &list).await;
        // Another worker has some of its elements.
        let mut next = Worker::open(&queue).await;
        let theirs = next.receive(20).await;
        assert_eq!(ids(&theirs), Vec::from_iter(1..=20));
        for (_, position) in &theirs {
            assert!(tokens.insert(position.id().token()), "{position:?} twice");
        }
        let before = all_of(&mut raw, &list).await;
        late.settle(&handed).await;
        let refused = late.0.confirm().await.unwrap_err().to_string();
        assert!(refused.contains("lease"), "{refused}");
        assert_eq!(all_of(&mut raw, &list).await, before);
        check(&mut raw, &list).await;
        next.0.close().await.unwrap();
    }
    let mut last = Worker::open(&queue).await;
    let handed = last.receive(60).await;
    last.ack(&handed).await;
    last.0.close().await.unwrap();
    check_idle(&mut raw, &list).await;
}

/// A key fills the inbox of its worker. The others go on until then, and afterwards.
#[tokio::test]
async fn a_hot_key_stops_the_list_at_the_stated_bound_and_not_before() {
    let server = shared(RedisKind::Redis7).await;
    let list = new_name("hot");
    let builder = builder(&server.url(), &list).lease(Duration::from_secs(60));
    let queue = builder.most_sent(10).build().unwrap();
    let mut raw = connect(&server.url()).await;
    // The key 0 is hot: it has every other message.
    let message = |id: u64| message(if id % 2 == 1 { 0 } else { id }, id);
    queue.push(&message(1)).await.unwrap();
    let mut hot = Worker::open(&queue).await;
    let first = hot.receive(1).await;
    let messages: Vec<_> = (2..=60).map(message).collect();
    queue.push_all(&messages).await.unwrap();
    let mut other = Worker::open(&queue).await;
    // 10 of the hot key are sent, and the eleventh stays: 2, 4 … 22 come before it.
    let handed = other.receive(11).await;
    assert_eq!(ids(&handed), Vec::from_iter((1..=11).map(|n| 2 * n)));
    other.ack(&handed).await;
    let status = queue.status().await.unwrap();
    let sent: Vec<_> = status.workers.iter().map(|worker| worker.sent).collect();
    assert_eq!(sent.iter().sum::<u64>(), 10, "{status}");
    assert_eq!(status.waiting, 60 - 22);
    // It does not come later.
    let mut into = Deliveries::new(1, Instant::now() + Duration::from_millis(300));
    other.0.receive(&mut into).await.unwrap();
    assert!(into.is_empty(), "the list waits");
    check(&mut raw, &list).await;
    hot.ack(&first).await;
    let handed = hot.receive(10).await;
    assert_eq!(ids(&handed), Vec::from_iter((1..=10).map(|n| 2 * n + 1)));
    let handed_to_other = other.receive(5).await;
    assert_eq!(ids(&handed_to_other)[0], 24, "it goes on");
    hot.ack(&handed).await;
    hot.0.close().await.unwrap();
    other.ack(&handed_to_other).await;
    other.0.close().await.unwrap();
    let mut last = Worker::open(&queue).await;
    let handed = last.receive(60 - 22 - 5).await;
    last.ack(&handed).await;
    last.0.close().await.unwrap();
    check_idle(&mut raw, &list).await;
}

/// More elements than one call of a script can have as arguments, held and in an inbox: the worker
/// goes on with them, and dies with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_goes_on_and_goes_back_in_its_order() {
    const HELD: u64 = 9_000;
    const ALL: u64 = 110_000;
    let server = own(RedisKind::Redis7).await;
    let list = new_name("much");
    let builder = builder(&server.url(), &list).lease(Duration::from_secs(60));
    let queue = builder.most_sent(1_000_000).build().unwrap();
    let mut raw = connect(&server.url()).await;
    let messages: Vec<_> = (1..=HELD).map(|id| message(id % 3, id)).collect();
    queue.push_all(&messages).await.unwrap();
    let mut worker = Worker::open(&queue).await;
    let first = worker.receive(HELD as usize).await;
    assert_eq!(ids(&first), Vec::from_iter(1..=HELD));
    for from in (HELD + 1..=ALL).step_by(10_000) {
        let messages: Vec<_> = (from..(from + 10_000).min(ALL + 1))
            .map(|id| message(id % 3, id))
            .collect();
        queue.push_all(&messages).await.unwrap();
    }
    // Another worker sends them there.
    let mut other = Worker::open(&queue).await;
    queue.push(&message(7, ALL + 1)).await.unwrap();
    let seven = other.receive(1).await;
    assert_eq!(ids(&seven), [ALL + 1]);
    other.ack(&seven).await;
    other.0.close().await.unwrap();
    check(&mut raw, &list).await;
    assert_eq!(queue.status().await.unwrap().waiting, 0);

    // It goes on with its elements.
    let mut kill = cmd("CLIENT");
    kill.arg("KILL")
        .arg("TYPE")
        .arg("normal")
        .arg("SKIPME")
        .arg("yes");
    let _: u64 = kill.query_async(&mut raw).await.unwrap();
    worker.0.open().await.unwrap();
    let again = worker.receive(HELD as usize).await;
    assert_eq!(ids(&again), Vec::from_iter(1..=HELD));
    let newest = first
        .iter()
        .map(|(_, position)| position.id().token())
        .max();
    assert!(
        again
            .iter()
            .all(|(_, position)| Some(position.id().token()) > newest)
    );
    check(&mut raw, &list).await;

    // It dies.
    let name = names(&mut raw, &list).await.remove(0);
    let mut expire = cmd("ZADD");
    expire.arg(beside(&list, "workers")).arg(0).arg(&name);
    expire.exec_async(&mut raw).await.unwrap();
    assert_eq!(queue.return_expired().await.unwrap(), ALL);
    check(&mut raw, &list).await;
    let mut next = Worker::open(&queue).await;
    let handed = next.receive(ALL as usize).await;
    assert_eq!(ids(&handed), Vec::from_iter(1..=ALL));
    next.ack(&handed).await;
    next.0.close().await.unwrap();
    check_idle(&mut raw, &list).await;
}

/// Keys and payloads of any bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_bytes_are_a_key_and_a_payload() {
    let server = shared(RedisKind::Valkey9).await;
    let list = new_name("bytes");
    let builder = builder(&server.url(), &list).lease(Duration::from_secs(60));
    let queue = builder.key(ListKey::before(b"::")).build().unwrap();
    let mut raw = connect(&server.url()).await;
    let all: Vec<u8> = (0..=255).collect();
    let keys: [&[u8]; 9] = [
        b"",
        b":",
        b"a:b:c",
        b"line\nline\r\n",
        b"\0kl1",
        b"\xff\xfe\0",
        b"3:worker",
        &all,
        b"k",
    ];
    let large = vec![b'x'; 1 << 20];
    let mut pushed = Vec::new();
    for round in 0_u8..4 {
        for key in keys {
            let payload = match (key, round) {
                (b"k", _) => [&large[..], &[round]].concat(),
                _ => vec![round],
            };
            pushed.push((Bytes::copy_from_slice(key), Bytes::from(payload.clone())));
            queue
                .push(&RawMessage::new(payload).key(Bytes::copy_from_slice(key)))
                .await
                .unwrap();
        }
    }
    let mut workers = [Worker::open(&queue).await, Worker::open(&queue).await];
    // The first worker has all keys, and the other sends it the later elements.
    let first = workers[0].receive(keys.len()).await;
    check(&mut raw, &list).await;
    let mut push = cmd("LPUSH");
    push.arg(&list).arg("other::1");
    push.exec_async(&mut raw).await.unwrap();
    let other = workers[1].receive(1).await;
    assert_eq!(other[0].0.key.as_deref(), Some(&b"other"[..]));
    check(&mut raw, &list).await;
    workers[1].ack(&other).await;
    workers[0].ack(&first).await;
    let rest = workers[0].receive(3 * keys.len()).await;
    let handed = first.iter().chain(&rest);
    for key in keys {
        let of_key =
            |(message, _): &&(RawMessage, ListPosition)| message.key.as_deref() == Some(key);
        let handed: Vec<_> = handed
            .clone()
            .filter(of_key)
            .map(|(message, _)| &message.payload)
            .collect();
        let pushed: Vec<_> = pushed
            .iter()
            .filter(|(other, _)| other == key)
            .map(|(_, payload)| payload)
            .collect();
        assert_eq!(handed, pushed, "{key:?}");
    }
    workers[0].ack(&rest).await;
    for mut worker in workers {
        worker.0.close().await.unwrap();
    }
    check_idle(&mut raw, &list).await;
}

/// In a cluster all keys of a list are on one node. Its client repeats a request whose answer was
/// lost with a connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_order_while_its_connections_are_killed() {
    let cluster = RedisCluster::start(RedisKind::Redis7, 3).await.unwrap();
    let urls = cluster.urls();
    let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
    // For the same reason an element could be pushed twice, so it is pushed without faults.
    for (list, node) in [("{shop}orders", None), ("orders", None)] {
        let queue = ListQueue::builder(&redis, list)
            .lease(Duration::from_secs(2))
            .build()
            .unwrap();
        let node = match node {
            Some(node) => node,
            None => node_of(&cluster, list).await,
        };
        let node: &testkit_servers::Redis = node;
        let mut raw = connect(&node.url()).await;
        let pushes = ListQueue::builder(&Redis::at(&node.url()).unwrap(), list);
        let pushes = pushes.build().unwrap();
        let mut crew = Crew::new(list, pushes, 20).await;
        for _ in 0..3 {
            crew.join(&queue);
        }
        crew.progress(100).await;
        let mut random = Random::new(5);
        for _ in 0..30 {
            crew.progress(random.below(20) as usize).await;
            kill_workers(&mut raw).await;
            check(&mut connect(&node.url()).await, list).await;
        }
        let mut story = crew.finish(&node.url()).await;
        story.may_repeat = true;
        println!("{list} in a cluster: {}", story.judge());
    }
}

/// The node that has the slot of a list.
async fn node_of<'a>(cluster: &'a RedisCluster, list: &str) -> &'a testkit_servers::Redis {
    for node in cluster.nodes() {
        if node.execute(&["LLEN", list]).await.is_ok() {
            return node;
        }
    }
    panic!("no node has {list}");
}

/// Kills the connections that have run a script, but not those of the test and the producer.
async fn kill_workers(server: &mut MultiplexedConnection) {
    let mut clients = cmd("CLIENT");
    clients.arg("LIST");
    let clients: String = clients.query_async(server).await.unwrap();
    for client in clients.lines() {
        let is_worker = ["evalsha", "blmove"]
            .iter()
            .any(|last| client.contains(&format!("cmd={last}")));
        let own = client.split(' ').find_map(|word| word.strip_prefix("id="));
        if let (true, Some(id)) = (is_worker, own) {
            let mut kill = cmd("CLIENT");
            kill.arg("KILL").arg("ID").arg(id);
            let _: u64 = kill.query_async(server).await.unwrap();
        }
    }
}

/// A server of its own and a lease that is over before any answer can come: no worker gets any work
/// done, and no element is lost.
#[tokio::test]
async fn a_lease_of_a_millisecond_loses_nothing() {
    let server = own(RedisKind::Redis7).await;
    let list = new_name("short");
    let builder = builder(&server.url(), &list);
    let short = builder
        .clone()
        .lease(Duration::from_millis(1))
        .build()
        .unwrap();
    let queue = builder.build().unwrap();
    let mut crew = Crew::new(&list, queue.clone(), 5).await;
    crew.join(&short);
    crew.join(&short);
    let mut raw = connect(&server.url()).await;
    until("they have tried", async || {
        check(&mut raw, &list).await;
        crew.workers
            .iter()
            .all(|worker| worker.stats().restarts >= 3)
    })
    .await;
    crew.join(&queue);
    crew.progress(200).await;
    for short in crew.workers.drain(..2) {
        short.stop().within(Duration::ZERO).await;
    }
    let mut story = crew.finish(&server.url()).await;
    story.may_repeat = true;
    println!("with a lease of a millisecond: {}", story.judge());
}
