//! Redis and Valkey: what the databases do too, replicas, and clusters.

use std::future::Future;
use std::time::{Duration, Instant};

use testkit_servers::{Fsync, Redis, RedisCluster, RedisKind, RedisSentinels, ServerError};

use crate::killed::{self, State};
use crate::processes::{is_dead, refuses, state, tree};

/// What a replica or a cluster needs at most to hear of something, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

async fn execute(server: &Redis, command: &str) -> Result<String, ServerError> {
    let words: Vec<_> = command.split(' ').collect();
    server.execute(&words).await
}

/// Executes a command that the server takes.
async fn done(server: &Redis, command: &str) -> String {
    let reply = execute(server, command).await;
    reply.unwrap_or_else(|error| panic!("{}: `{command}`: {error}", server.kind()))
}

/// The words with which the server refuses a command.
async fn refused(server: &Redis, command: &str) -> String {
    match execute(server, command).await {
        Err(ServerError::Refused { answer }) => answer,
        other => panic!("{}: `{command}` was not refused: {other:?}", server.kind()),
    }
}

/// Asks again and again until the answer is the one that is awaited.
async fn eventually<F: Future<Output = String>>(
    ask: impl Fn() -> F,
    is_it: impl Fn(&str) -> bool,
) -> String {
    let began = Instant::now();
    loop {
        let answer = ask().await;
        if is_it(&answer) {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "still `{answer}`");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn keeps_what_was_answered(kind: RedisKind) {
    let clock = tokio::time::Instant::now();
    let server = Redis::start(kind).await.unwrap();
    assert_eq!(server.kind(), kind);
    let (url, port) = (server.url(), server.port());
    assert_eq!(url, format!("redis://127.0.0.1:{port}/"));
    assert_eq!(done(&server, "SET order 7").await, "OK");
    assert_eq!(done(&server, "CONFIG GET bind").await, "bind\n127.0.0.1");
    let fsync = done(&server, "CONFIG GET appendfsync").await;
    assert_eq!(fsync, "appendfsync\nalways");

    let pids = tree(server.pid().unwrap());
    server.kill().await.unwrap();
    assert!(pids.iter().all(|pid| is_dead(*pid)));
    assert!(server.pid().is_none() && refuses(port));
    server.kill().await.unwrap(); // does nothing
    let asked = execute(&server, "GET order").await;
    assert!(
        matches!(asked, Err(ServerError::System { .. })),
        "{asked:?}"
    );
    let paused = server.pause().await;
    assert!(matches!(paused, Err(ServerError::NotRunning)), "{paused:?}");

    server.start_again().await.unwrap();
    assert_eq!(done(&server, "GET order").await, "7");
    let again = server.start_again().await;
    assert!(matches!(again, Err(ServerError::Running)), "{again:?}");

    server.stop().await.unwrap();
    assert!(server.pid().is_none() && refuses(port));
    server.stop().await.unwrap(); // does nothing
    server.start_again().await.unwrap();
    assert_eq!(done(&server, "GET order").await, "7");
    assert_eq!((server.port(), server.url()), (port, url));
    assert_eq!(
        clock.elapsed(),
        Duration::ZERO,
        "the clock of the test ran on"
    );
}

async fn hangs_while_it_is_paused(kind: RedisKind) {
    let server = Redis::start(kind).await.unwrap();
    server.pause().await.unwrap();
    let pid = server.pid().unwrap();
    assert_eq!(state(pid), Some('T'));
    let mut asked = Box::pin(execute(&server, "ECHO hello"));
    let hangs = tokio::time::timeout(Duration::from_millis(500), &mut asked);
    assert!(hangs.await.is_err());
    server.resume().await.unwrap();
    assert_eq!(asked.await.unwrap(), "hello");

    // It can be killed and stopped all the same.
    server.pause().await.unwrap();
    server.kill().await.unwrap();
    assert!(is_dead(pid));
    server.start_again().await.unwrap();
    server.pause().await.unwrap();
    server.stop().await.unwrap();
    assert_eq!(server.pid(), None);
}

async fn shares_nothing_and_leaves_nothing(kind: RedisKind) {
    let start = || Redis::start(kind);
    let (one, two) = tokio::join!(start(), start());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.port(), two.port());
    done(&one, "SET order 7").await;
    assert_eq!(done(&two, "GET order").await, "(nil)");
    assert!(one.log().contains("Ready to accept connections"));

    let pids = tree(one.pid().unwrap());
    let (folder, port) = (one.folder().to_owned(), one.port());
    assert!(folder.is_dir());
    drop(one);
    assert!(pids.iter().all(|pid| is_dead(*pid)));
    assert!(!folder.exists() && refuses(port));
    assert_eq!(done(&two, "PING").await, "PONG");
}

async fn takes_settings(kind: RedisKind) {
    let builder = Redis::builder(kind)
        .appendfsync(Fsync::EverySecond)
        .password("p@ss")
        .argument("maxmemory", "1gb")
        .argument("busy-reply-threshold", "200");
    assert!(!format!("{builder:?}").contains("p@ss"));
    let server = builder.start().await.unwrap();
    let port = server.port();
    assert_eq!(server.url(), format!("redis://:p%40ss@127.0.0.1:{port}/"));
    let settings = "CONFIG GET appendfsync maxmemory busy-reply-threshold requirepass";
    let set = done(&server, settings).await;
    for set_to in [
        "appendfsync\neverysec",
        "maxmemory\n1073741824",
        "busy-reply-threshold\n200",
        "requirepass\np@ss",
    ] {
        assert!(set.contains(set_to), "{set}");
    }
    let answer = refused(&server, "INCR").await;
    assert!(answer.contains("wrong number of arguments"), "{answer}");
    server.kill().await.unwrap();
    server.start_again().await.unwrap();

    let wrong = Redis::builder(kind).argument("maxmemory", "much");
    let error = wrong.start().await.unwrap_err();
    assert!(matches!(error, ServerError::Ended { .. }), "{error}");
    assert!(error.to_string().contains("maxmemory"), "{error}");
}

async fn a_replica_follows_and_is_promoted(kind: RedisKind) {
    let primary = Redis::builder(kind).password("one").start().await.unwrap();
    done(&primary, "SET order 1").await;
    let replica = Redis::builder(kind).password("one").replica_of(&primary);
    let replica = replica.start().await.unwrap();
    assert_eq!(done(&replica, "GET order").await, "1");
    replica.pause().await.unwrap();
    done(&primary, "SET order 2").await;
    let replicated = tokio::time::timeout(Duration::from_millis(200), primary.replicated());
    assert!(
        replicated.await.is_err(),
        "a paused replica confirms nothing"
    );
    replica.resume().await.unwrap();
    primary.replicated().await.unwrap();
    assert_eq!(done(&replica, "GET order").await, "2");
    let answer = refused(&replica, "SET order 3").await;
    assert!(answer.starts_with("READONLY"), "{answer}");

    primary.kill().await.unwrap();
    // It starts without its primary, and with the data that it has.
    replica.kill().await.unwrap();
    replica.start_again().await.unwrap();
    assert_eq!(done(&replica, "GET order").await, "2");
    done(&replica, "REPLICAOF NO ONE").await;
    done(&replica, "SET order 3").await;

    // The one before it comes back and follows.
    primary.start_again().await.unwrap();
    assert_eq!(done(&primary, "GET order").await, "2");
    done(&primary, &format!("REPLICAOF 127.0.0.1 {}", replica.port())).await;
    let order = || done(&primary, "GET order");
    eventually(order, |order| order == "3").await;
}

/// The nodes agree on the owner of every slot, and each takes the keys of its own alone.
async fn a_cluster_takes_each_key_on_its_node(kind: RedisKind) {
    let cluster = RedisCluster::start(kind, 3).await.unwrap();
    let urls = cluster.nodes().iter().map(Redis::url);
    assert_eq!(cluster.urls(), urls.collect::<Vec<_>>());
    let bounds = [0, 5_461, 10_922, 16_384];
    for node in cluster.nodes() {
        let slots = done(node, "CLUSTER SLOTS").await;
        for (owner, bounds) in cluster.nodes().iter().zip(bounds.windows(2)) {
            let (first, last) = (bounds[0], bounds[1] - 1);
            let range = format!("{first}\n{last}\n127.0.0.1\n{}\n", owner.port());
            assert!(slots.contains(&range), "{slots}");
        }
    }
    let mut taken = [0; 3];
    for key in 0..60 {
        let slot = done(cluster.node(0), &format!("CLUSTER KEYSLOT key:{key}")).await;
        let slot: usize = slot.parse().unwrap();
        let owner = bounds.iter().rposition(|first| slot >= *first).unwrap();
        for (index, node) in cluster.nodes().iter().enumerate() {
            let set = format!("SET key:{key} {key}");
            if index == owner {
                assert_eq!(done(node, &set).await, "OK");
                taken[index] += 1;
            } else {
                let port = cluster.node(owner).port();
                let moved = format!("MOVED {slot} 127.0.0.1:{port}");
                assert_eq!(refused(node, &set).await, moved);
            }
        }
    }
    assert!(taken.iter().all(|keys| *keys > 0), "{taken:?}");
}

async fn a_cluster_comes_back(kind: RedisKind) {
    let settings = Redis::builder(kind)
        .password("secret")
        .argument("cluster-node-timeout", "1000");
    let cluster = settings.start_cluster(3).await.unwrap();
    let (other, lost) = (cluster.node(0), cluster.node(1));
    let slot = done(other, "CLUSTER KEYSLOT c").await;
    assert_eq!(slot, "7365", "of the second node");
    done(lost, "SET c 7").await;
    lost.kill().await.unwrap();
    let early = cluster.ready().await;
    assert!(matches!(early, Err(ServerError::NotRunning)), "{early:?}");
    let info = || done(other, "CLUSTER INFO");
    eventually(info, |info| info.contains("cluster_state:fail")).await;

    lost.start_again().await.unwrap();
    cluster.ready().await.unwrap();
    // Again and again: a node that is slow counts as failed for a while.
    let get = || async { format!("{:?}", execute(lost, "GET c").await) };
    eventually(get, |got| got == "Ok(\"7\")").await;
}

/// The number of the node that has the key, and its answer. A node that is slow counts as failed for
/// a while, and may refuse.
async fn at_its_node(cluster: &RedisCluster, command: &str) -> String {
    match cluster.place_of("key").await {
        Some(at) => format!("{at} {:?}", execute(cluster.node(at), command).await),
        None => "no node has the key".to_owned(),
    }
}

async fn a_replica_of_a_cluster_takes_over(kind: RedisKind) {
    let mut cluster = Redis::builder(kind).start_cluster(3).await.unwrap();
    cluster.add_replicas().await.unwrap();
    assert_eq!(cluster.nodes().len(), 6);
    let set = async |value: &str| {
        let command = format!("SET key {value}");
        let is_set = |answer: &str| answer.ends_with("Ok(\"OK\")");
        let answer = eventually(|| at_its_node(&cluster, &command), is_set).await;
        let (at, _) = answer.split_once(' ').expect("a node");
        let at: usize = at.parse().expect("the number of a node");
        at
    };
    let first = set("1").await;
    assert!(first < 3);
    // What its replica does not have yet would be lost.
    cluster.node(first).replicated().await.unwrap();
    cluster.node(first).kill().await.unwrap();
    let expected = format!("{} Ok(\"1\")", first + 3);
    let get = || at_its_node(&cluster, "GET key");
    eventually(get, |answer| answer == expected).await;
    cluster.node(first).start_again().await.unwrap();
    cluster.ready().await.unwrap();
    let role = async || done(cluster.node(first), "INFO replication").await;
    eventually(role, |info| info.contains("role:slave")).await;

    // And its slot moves.
    let other = (first + 1) % 3;
    cluster.move_slot("key", other).await.unwrap();
    assert_eq!(set("2").await, other);
}

macro_rules! redis_tests {
    ($kind:ident) => {
        use super::*;

        const KIND: RedisKind = RedisKind::$kind;

        #[tokio::test(start_paused = true)]
        async fn keeps_what_was_answered() {
            super::keeps_what_was_answered(KIND).await;
        }

        #[tokio::test]
        async fn hangs_while_it_is_paused() {
            super::hangs_while_it_is_paused(KIND).await;
        }

        #[tokio::test]
        async fn shares_nothing_and_leaves_nothing() {
            super::shares_nothing_and_leaves_nothing(KIND).await;
        }

        #[tokio::test]
        async fn takes_settings() {
            super::takes_settings(KIND).await;
        }

        #[tokio::test]
        async fn a_replica_follows_and_is_promoted() {
            super::a_replica_follows_and_is_promoted(KIND).await;
        }

        #[tokio::test]
        async fn a_cluster_takes_each_key_on_its_node() {
            super::a_cluster_takes_each_key_on_its_node(KIND).await;
        }

        #[tokio::test]
        async fn a_cluster_comes_back() {
            super::a_cluster_comes_back(KIND).await;
        }

        #[tokio::test]
        async fn a_replica_of_a_cluster_takes_over() {
            super::a_replica_of_a_cluster_takes_over(KIND).await;
        }

        #[test]
        fn dies_with_a_killed_test() {
            let child = concat!(module_path!(), "::child");
            killed::outlived_by_nothing(child, State::Running);
        }

        #[test]
        fn dies_with_a_killed_test_while_it_is_paused() {
            let child = concat!(module_path!(), "::child");
            killed::outlived_by_nothing(child, State::Paused);
        }

        /// The test that is killed. It does nothing when it is not started by one of those above.
        #[tokio::test]
        async fn child() {
            let Some(state) = killed::state() else { return };
            let server = Redis::start(KIND).await.unwrap();
            if state == State::Paused {
                server.pause().await.unwrap();
            }
            let folder = server.folder().to_str().unwrap();
            killed::report(server.pid().unwrap(), server.port(), folder);
            std::future::pending::<()>().await;
        }
    };
}

mod redis_7 {
    redis_tests!(Redis7);
}

mod redis_8 {
    redis_tests!(Redis8);
}

mod valkey_9 {
    redis_tests!(Valkey9);
}

#[tokio::test]
async fn sentinels_promote_a_replica() {
    for (kind, count) in [
        (RedisKind::Redis7, 1),
        (RedisKind::Redis8, 3),
        (RedisKind::Valkey9, 1),
    ] {
        let primary = Redis::builder(kind).password("secret");
        let primary = primary.start().await.unwrap();
        let replica = Redis::builder(kind).password("secret").replica_of(&primary);
        let replica = replica.start().await.unwrap();
        let sentinels = RedisSentinels::start(&primary, count).await.unwrap();
        assert_eq!(sentinels.urls().len(), count);
        assert_eq!(sentinels.primary().await, Some(primary.port()), "{kind}");
        if count > 1 {
            sentinels.kill(0).await.unwrap();
        }
        primary.kill().await.unwrap();
        let named = || async { format!("{:?}", sentinels.primary().await) };
        let port = format!("Some({})", replica.port());
        eventually(named, |named| named == port).await;
        // Sentinels close the connections of a server whose role they change.
        let role = async |server| format!("{:?}", execute(server, "ROLE").await);
        eventually(|| role(&replica), |role| role.contains("master")).await;
        if count > 1 {
            primary.start_again().await.unwrap();
            eventually(|| role(&primary), |role| role.contains("slave")).await;
            sentinels.start_again(0).await.unwrap();
            eventually(named, |named| named == port).await;
        }
    }
}
