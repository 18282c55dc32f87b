//! Who is woken by a change, and that nothing is missed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use keylane_leader::ElectionStore;
use keylane_leader::store::{Election, Stage};
use keylane_testkit::scenario::{until, until_async};
use testkit_servers::{RedisCluster, RedisKind};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::Level;

use super::{Place, choosing, elections, id};
use crate::logs::Logs;
use crate::support::{each_kind, execute, new_namespace, own, proxy, shared};

/// Waiters look once a minute by themselves.
const PROMPT: Duration = Duration::from_secs(10);

const PATIENCE: Duration = Duration::from_secs(45);

/// The connections that are subscribed to the changes of elections.
async fn subscribers(server: &testkit_servers::Redis) -> Vec<String> {
    let clients = execute(server, "CLIENT LIST TYPE pubsub").await;
    let ours = clients.lines().filter(|client| client.contains(" sub=1 "));
    let ids = ours.filter_map(|client| client.split(' ').next());
    ids.map(str::to_owned).collect()
}

async fn subscribed(server: &testkit_servers::Redis) -> usize {
    subscribers(server).await.len()
}

/// Candidates that wait in the background, and the names of those that were woken.
#[derive(Default)]
struct Waiting {
    woken: Arc<Mutex<Vec<String>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Waiting {
    fn add(&mut self, place: &Place, name: &str, seen: Election) {
        let (place, name) = (place.clone(), name.to_owned());
        let woken = Arc::clone(&self.woken);
        self.tasks.push(tokio::spawn(async move {
            place.changed(Some(&name), &seen).await;
            woken.lock().unwrap().push(name);
        }));
    }

    fn woken(&self) -> Vec<String> {
        self.woken.lock().unwrap().clone()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Waits until all earlier messages have reached these stores: they hear of another election.
async fn all_have_heard(places: &[Place], number: u64) {
    let others = places.iter().map(|place| Place {
        key: "another election".into(),
        ..place.clone()
    });
    let others = Vec::from_iter(others);
    let seen = others[0].look().await;
    let wait = others.iter().map(|other| other.changed(None, &seen));
    let record = others[0].record(number, "x", Stage::Began);
    let (_, recorded) = tokio::join!(join_all(wait), record);
    drop(recorded);
    // Tasks that the messages have woken have run before this one, which asks the server.
    for other in &others {
        other.look().await;
    }
}

/// Fifty candidates of five processes.
#[tokio::test]
async fn of_fifty_candidates_one_is_woken_by_a_change() {
    const PROCESSES: usize = 5;
    for kind in RedisKind::ALL {
        let (server, namespace) = (own(kind).await, new_namespace());
        let place = |_| Place::new(elections(&server.url(), &namespace), "jobs");
        let places = Vec::from_iter((0..PROCESSES).map(place));
        let leader = &places[0];
        let token = leader.grant().await;
        leader.record(token, "leader", Stage::Began).await;
        let name = |number: usize| format!("candidate-{number:02}");
        let mut seen = Vec::new();
        for number in 0..50 {
            let place = &places[number % PROCESSES];
            place.enter(&name(number)).await;
        }
        let mut waiting = Waiting::default();
        for number in 0..50 {
            let place = &places[number % PROCESSES];
            seen.push(place.look().await);
            waiting.add(place, &name(number), seen[number].clone());
        }
        until_async("all are subscribed", async || {
            subscribed(&server).await == PROCESSES
        })
        .await;
        all_have_heard(&places, 1).await;
        assert_eq!(waiting.woken(), [""; 0], "{kind}");

        // The leader chooses one.
        leader.write(&choosing(token, "leader", &name(30))).await;
        // It is the next one now, and the first one is no more.
        until(|| waiting.woken().len() >= 2).await;
        all_have_heard(&places, 2).await;
        let mut woken = waiting.woken();
        woken.sort();
        assert_eq!(woken, [name(0), name(30)], "{kind}");
        for number in [0, 30] {
            let place = &places[number % PROCESSES];
            let seen = place.look().await;
            assert_eq!(seen.next, Some(id(&name(30))));
            waiting.add(place, &name(number), seen);
        }

        // It releases the lease.
        waiting.woken.lock().unwrap().clear();
        leader.release(token).await;
        until(|| !waiting.woken().is_empty()).await;
        all_have_heard(&places, 3).await;
        assert_eq!(waiting.woken(), [name(30)], "{kind}");

        // The chosen one begins its term: the first one is next.
        waiting.woken.lock().unwrap().clear();
        let token = leader.grant().await;
        leader.record(token, &name(30), Stage::Began).await;
        until(|| !waiting.woken().is_empty()).await;
        all_have_heard(&places, 4).await;
        assert_eq!(waiting.woken(), [name(0)], "{kind}");

        // Each of the first ones withdraws.
        for number in 0..5 {
            waiting.woken.lock().unwrap().clear();
            // Those in the middle concern no other.
            leader.withdraw(&name(40 + number)).await;
            leader.withdraw(&name(number)).await;
            until(|| !waiting.woken().is_empty()).await;
            all_have_heard(&places, 5 + number as u64).await;
            assert_eq!(waiting.woken(), [name(number + 1)], "{kind}");
        }
    }
}

/// An entry ends, another candidate enters again, and the one behind hears of it.
#[tokio::test]
async fn the_second_is_woken_when_the_entry_of_the_first_has_ended() {
    each_kind(async |kind| {
        let place = Place::new(
            elections(&shared(kind).await.url(), &new_namespace()),
            "jobs",
        );
        let ttl = Duration::from_millis(500);
        place.enter_for("first", 1, ttl).await;
        let seen = place.enter("second").await;
        place.enter("third").await;
        if seen.next == Some(id("first")) {
            let waits = timeout(PROMPT, place.changed(Some("second"), &seen));
            let others = async {
                until_async("the first one is gone", async || {
                    place.enter("third").await.next == Some(id("second"))
                })
                .await;
            };
            let (woken, ()) = tokio::join!(waits, others);
            woken.unwrap_or_else(|_| panic!("{kind}: it is not woken"));
        }
        assert_eq!(place.next().await.as_deref(), Some("second"), "{kind}");
    })
    .await;
}

/// Waits as a candidate does, over calls that fail.
async fn comes(
    place: &Place,
    mut seen: Election,
    within: Duration,
    is_so: impl Fn(&Election) -> bool,
) {
    let waits = async {
        while !is_so(&seen) {
            let (a, key) = (id("a"), &place.key);
            let changed = place.store.changed(key, Some(&a), &seen).await;
            let now = place.store.look(key).await;
            if let (Ok(()), Ok(now)) = (changed, now) {
                seen = now;
            } else {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    let came = timeout(within, waits).await;
    came.expect("the change is noticed");
}

#[tokio::test]
async fn a_change_is_noticed_while_the_subscription_is_cut() {
    each_kind(async |kind| {
        let (server, namespace) = (own(kind).await, new_namespace());
        let here = Place::new(elections(&server.url(), &namespace), "jobs");
        let there = Place::new(elections(&server.url(), &namespace), "jobs");
        for _ in 0..3 {
            let token = there.grant().await;
            let seen = here.enter("a").await;
            let waits = comes(&here, seen, PROMPT, |seen| seen.holder.is_none());
            let cut = async {
                until_async("it is subscribed", async || subscribed(&server).await == 1).await;
                execute(&server, "CLIENT KILL TYPE pubsub").await;
                there.release(token).await;
            };
            tokio::join!(waits, cut);
        }
        until_async("it is subscribed again", async || {
            subscribed(&server).await == 1
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_change_is_noticed_when_all_connections_break() {
    each_kind(async |kind| {
        let (server, namespace) = (own(kind).await, new_namespace());
        let proxy = proxy(server.port()).await;
        let by_proxy = format!("redis://127.0.0.1:{}/", proxy.port());
        let here = Place::new(elections(&by_proxy, &namespace), "jobs");
        let there = Place::new(elections(&server.url(), &namespace), "jobs");
        let token = there.grant().await;
        let seen = here.enter("a").await;
        let waits = comes(&here, seen, PATIENCE, |seen| seen.holder.is_none());
        let breaks = async {
            until_async("it is subscribed", async || subscribed(&server).await == 1).await;
            proxy.refuse(true);
            proxy.reset();
            there.release(token).await;
            until_async("its connection is gone", async || {
                subscribed(&server).await == 0
            })
            .await;
            proxy.refuse(false);
        };
        tokio::join!(waits, breaks);

        // Now they are silent, and none is closed.
        let token = there.grant().await;
        let seen = here.look().await;
        let waits = comes(&here, seen, PATIENCE, |seen| seen.holder.is_none());
        let silence = async {
            until_async("it is subscribed", async || subscribed(&server).await == 1).await;
            proxy.forget();
            there.release(token).await;
        };
        tokio::join!(waits, silence);
    })
    .await;
}

#[tokio::test]
async fn a_user_who_may_not_subscribe_looks_now_and_then() {
    for kind in RedisKind::ALL {
        let (server, namespace) = (own(kind).await, new_namespace());
        execute(
            &server,
            "ACL SETUSER plain on >secret ~* +@all resetchannels",
        )
        .await;
        let url = server.url().replace("redis://", "redis://plain:secret@");
        let logs = Logs::record();
        let place = Place::new(elections(&url, &namespace), "jobs");
        let token = place.grant().await;
        let seen = place.enter("a").await;
        let waits = comes(&place, seen, PATIENCE, |seen| seen.holder.is_none());
        let releases = async {
            until(|| !logs.at(Level::WARN).is_empty()).await;
            place.release(token).await;
        };
        tokio::join!(waits, releases);
        let warnings = logs.at(Level::WARN);
        assert!(warnings[0].contains("subscribe"), "{kind}: {warnings:?}");
        assert_eq!(warnings.len(), 1, "{kind}: {warnings:?}");
    }
}

/// The runtime of the first waiter has the subscription, and ends.
#[test]
fn a_waiter_of_another_runtime_goes_on() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (first, second) = (runtime(), runtime());
    let (server, namespace) = (second.block_on(own(RedisKind::Redis8)), new_namespace());
    let place = Place::new(elections(&server.url(), &namespace), "jobs");
    let token = second.block_on(place.grant());
    let seen = second.block_on(place.enter("a"));
    let waits = {
        let (place, seen) = (place.clone(), seen.clone());
        async move { place.changed(Some("a"), &seen).await }
    };
    first.spawn(waits);
    second.block_on(async {
        until_async("the first one is subscribed", async || {
            subscribed(&server).await == 1
        })
        .await;
        let was = subscribers(&server).await;
        let waits = comes(&place, seen, PATIENCE, |seen| seen.holder.is_none());
        let ends = async {
            first.shutdown_background();
            until_async("the second one is subscribed", async || {
                let now = subscribers(&server).await;
                now.len() == 1 && now != was
            })
            .await;
            place.release(token).await;
        };
        tokio::join!(waits, ends);
    });
}

/// Channels are common to all databases of a server.
#[tokio::test]
async fn another_database_wakes_no_waiter() {
    each_kind(async |kind| {
        let (server, namespace) = (own(kind).await, new_namespace());
        let url = server.url();
        let other = format!("{}/1", url.trim_end_matches('/'));
        let here = Place::new(elections(&url, &namespace), "jobs");
        let there = Place::new(elections(&other, &namespace), "jobs");
        let seen = here.enter("a").await;
        let mut waiting = Waiting::default();
        waiting.add(&here, "a", seen);
        until_async("it is subscribed", async || subscribed(&server).await == 1).await;
        there.enter("a").await;
        there.record(7, "x", Stage::Began).await;
        all_have_heard(std::slice::from_ref(&here), 1).await;
        assert_eq!(waiting.woken(), [""; 0], "{kind}");
        here.record(7, "x", Stage::Began).await;
        until(|| waiting.woken() == ["a"]).await;
    })
    .await;
}

/// The leader is known to those that only watch, at whichever node of a cluster they have
/// subscribed.
#[tokio::test]
async fn all_nodes_of_a_cluster_tell_of_a_change() {
    let cluster = RedisCluster::start(RedisKind::Redis8, 3).await.unwrap();
    let urls = cluster.urls();
    let place = |first: usize| {
        let urls = urls.iter().cycle().skip(first).take(3);
        let redis = keylane_redis::Redis::cluster(urls.map(String::as_str)).unwrap();
        Place::new(
            keylane_redis::RedisElections::open(&redis, "jobs").unwrap(),
            "jobs",
        )
    };
    let places = Vec::from_iter((0..3).map(place));
    let seen = places[0].look().await;
    let watches = join_all(places.iter().map(|place| place.changed(None, &seen)));
    let begins = async {
        for node in cluster.nodes() {
            until_async("it is subscribed", async || subscribed(node).await == 1).await;
        }
        places[0].record(7, "x", Stage::Began).await;
    };
    let (heard, ()) = tokio::join!(timeout(PROMPT, watches), begins);
    heard.expect("all have heard of it");
}
