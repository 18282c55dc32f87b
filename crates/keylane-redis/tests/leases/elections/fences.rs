//! Writes of leaders whose term is over.

use keylane_leader::ElectionStore;
use keylane_leader::store::{History, Stage};
use keylane_leases::Token;
use keylane_redis::{FenceError, Redis, RedisElections};
use testkit_servers::{RedisCluster, RedisKind};

use super::{Place, elections};
use crate::support::{each_kind, execute, new_namespace, own, shared};

async fn write(place: &Place, token: u64, key: &str, value: &str) -> Result<(), FenceError> {
    let write = place.store.fence(&place.key, Token(token));
    write.command("SET", key, [value]).run().await
}

fn is_fenced(result: &Result<(), FenceError>) -> bool {
    matches!(result, Err(FenceError::Fenced))
}

/// An older leader was paused, and writes when the next one has begun. Its write without the fence
/// replaces that of the newer one.
#[tokio::test]
async fn a_write_of_an_older_term_is_refused() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let place = Place::new(elections(&server.url(), &namespace), "jobs");
        let (plain, fenced) = (format!("{namespace}-plain"), format!("{namespace}-fenced"));
        // There is no term yet.
        assert!(
            is_fenced(&write(&place, 1, &fenced, "none").await),
            "{kind}"
        );
        let old = place.grant().await;
        place.record(old, "a", Stage::Began).await;
        write(&place, old, &fenced, "old").await.unwrap();
        place.record(old, "a", Stage::Leaving).await;
        write(&place, old, &fenced, "old, handing over")
            .await
            .unwrap();
        let value = execute(server, &format!("GET {fenced}")).await;
        assert_eq!(value, "old, handing over", "{kind}");

        place.release(old).await;
        let new = place.grant().await;
        place.record(new, "b", Stage::Began).await;
        for (token, value) in [(new, "new"), (old, "old")] {
            execute(server, &format!("SET {plain} {value}")).await;
            let written = write(&place, token, &fenced, value).await;
            assert_eq!(is_fenced(&written), token == old, "{kind}: {written:?}");
        }
        assert_eq!(
            execute(server, &format!("GET {plain}")).await,
            "old",
            "{kind}"
        );
        assert_eq!(
            execute(server, &format!("GET {fenced}")).await,
            "new",
            "{kind}"
        );

        // A leader that has handed over writes nothing more, also before the next one begins.
        place.record(new, "b", Stage::Ended).await;
        assert!(
            is_fenced(&write(&place, new, &fenced, "late").await),
            "{kind}"
        );
        // A term that is not recorded yet may not write either.
        assert!(
            is_fenced(&write(&place, new + 1, &fenced, "early").await),
            "{kind}"
        );
        assert_eq!(
            execute(server, &format!("GET {fenced}")).await,
            "new",
            "{kind}"
        );
    })
    .await;
}

/// Records are compared as text: no token is a part of another, and none is rounded.
#[tokio::test]
async fn a_similar_token_is_another() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let place = Place::new(elections(&server.url(), &namespace), "jobs");
        let key = format!("{namespace}-value");
        for token in [1, 10, (1 << 53) + 1, u64::MAX] {
            place.record(token, "began", Stage::Began).await;
            for other in [token - 1, token.wrapping_add(1), token / 10] {
                let written = write(&place, other, &key, "other").await;
                assert!(is_fenced(&written), "{kind}: {other} is not {token}");
            }
            write(&place, token, &key, "mine").await.unwrap();
        }
        // Another election has another term.
        let other = Place {
            key: "job".into(),
            ..place
        };
        assert!(
            is_fenced(&write(&other, u64::MAX, &key, "x").await),
            "{kind}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_write_in_another_history_is_refused() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let place = Place::new(elections(&server.url(), "elections"), "jobs");
        place.record(7, "a", Stage::Began).await;
        let history = place.store.history().await.unwrap();
        let add = async |history: &History| {
            let write = place.store.fence("jobs", Token(7)).history(history);
            write.command("RPUSH", "list", ["x"]).run().await
        };
        add(&history).await.unwrap();
        let other = add(&History::new("another")).await;
        assert!(is_fenced(&other), "{kind}: {other:?}");
        let again = History::new(format!("{history} "));
        assert!(is_fenced(&add(&again).await), "{kind}");
        // An operator empties the server: the term is gone.
        execute(&server, "FLUSHALL").await;
        assert!(is_fenced(&add(&history).await), "{kind}");
        assert_eq!(execute(&server, "EXISTS list").await, "0", "{kind}");
    })
    .await;
}

/// All commands are one step, in their order, whatever is in their words.
#[tokio::test]
async fn all_commands_of_a_write_are_executed() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let place = Place::new(elections(&server.url(), &namespace), "jobs");
        place.record(7, "a", Stage::Began).await;
        let key = |end: &str| format!("{namespace}-{end}");
        let words = (0..3_000).map(|number| format!("{number} \r\n\0"));
        let write = place.store.fence("jobs", Token(7));
        let write = write.command("RPUSH", key("list"), words);
        let write = write.command("INCR", key("count"), [""; 0]);
        let write = write.command("HSET", key("hash"), [&b"field"[..], &[0, 255]]);
        let write = write.command("INCR", key("count"), [""; 0]);
        write.run().await.unwrap();
        let list = execute(server, &format!("LLEN {}", key("list"))).await;
        let count = execute(server, &format!("GET {}", key("count"))).await;
        let length = execute(server, &format!("HSTRLEN {} field", key("hash"))).await;
        assert_eq!([list, count, length], ["3000", "2", "2"], "{kind}");
        // No command is a command, too: it asks whether the term goes on.
        place.store.fence("jobs", Token(7)).run().await.unwrap();
        assert!(is_fenced(&place.store.fence("jobs", Token(8)).run().await));

        let write = place.store.fence("jobs", Token(7));
        let many = write.command("RPUSH", key("list"), (0..4_000).map(|n| n.to_string()));
        let error = many.run().await.unwrap_err();
        assert!(error.to_string().contains("too many words"), "{error}");
        let write = place.store.fence("jobs", Token(7));
        let write = write.command("SET", key("last"), ["written"]);
        let write = write.command("INCR", key("list"), [""; 0]);
        let error = write.run().await.unwrap_err();
        assert!(matches!(error, FenceError::Redis(_)), "{kind}: {error}");
        assert!(error.to_string().contains("WRONGTYPE"), "{kind}: {error}");
        // As it is documented: what was before that command stays.
        let last = execute(server, &format!("GET {}", key("last"))).await;
        assert_eq!(last, "written", "{kind}");
    })
    .await;
}

#[tokio::test]
async fn a_fenced_write_in_a_cluster_is_in_the_slot_of_its_elections() {
    for kind in RedisKind::ALL {
        let cluster = RedisCluster::start(kind, 3).await.unwrap();
        let urls = cluster.urls();
        let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
        for namespace in ["{shop}jobs", "{bank}jobs", "shop"] {
            let place = Place::new(RedisElections::open(&redis, namespace).unwrap(), "jobs");
            place.record(7, "a", Stage::Began).await;
            let tag = namespace.trim_start_matches('{').split('}').next().unwrap();
            let value = format!("{{{tag}}}value");
            write(&place, 7, &value, "x").await.unwrap();
            assert!(is_fenced(&write(&place, 6, &value, "y").await), "{kind}");
            let error = write(&place, 7, "{another}value", "x").await.unwrap_err();
            assert!(
                error.to_string().to_uppercase().contains("SLOT"),
                "{kind}: {error}"
            );
        }
    }
}
