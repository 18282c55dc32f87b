//! Names, ranks, tokens and times at their limits, and what an election leaves behind.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use keylane_leader::store::{Recorded, Stage};
use keylane_testkit::scenario::until_async;
use testkit_servers::{Redis, RedisKind};

use super::{LONG, Place, choosing, elections, id, term};
use crate::support::{each_kind, execute, new_namespace, own, shared};

#[tokio::test]
async fn ids_and_ranks_at_their_limits() {
    each_kind(async |kind| {
        let place = Place::new(
            elections(&shared(kind).await.url(), &new_namespace()),
            "jobs",
        );
        let (longest, other) = ("x".repeat(100), "x".repeat(99) + "y");
        // Words of a record, and numbers, are names, too.
        let names = [
            "leaving", "0", "-inf", "(1", "[a", "~", "{a}", &longest, &other,
        ];
        for name in names {
            place.enter_for(name, u16::MAX, LONG).await;
        }
        place.enter_for("first", 0, LONG).await;
        place.enter_for("second", u16::MAX - 1, LONG).await;
        for name in ["first", "second"].into_iter().chain(names) {
            assert_eq!(place.next().await.as_deref(), Some(name), "{kind}");
            place.withdraw(name).await;
        }
        assert_eq!(place.next().await, None, "{kind}");
        // A leader of this name chooses no candidate.
        for name in ["began", "ended", "a"] {
            place.enter(name).await;
        }
        place.record(1, "leaving", Stage::Ended).await;
        assert_eq!(place.next().await.as_deref(), Some("began"), "{kind}");
        place.write(&choosing(2, "leaving", "leaving")).await;
        assert_eq!(place.next().await.as_deref(), Some("began"), "{kind}");
        place.write(&choosing(2, "leaving", "a")).await;
        assert_eq!(place.next().await.as_deref(), Some("a"), "{kind}");
    })
    .await;
}

/// Tokens are compared as numbers of 64 bits.
#[tokio::test]
async fn tokens_of_terms_are_exact() {
    each_kind(async |kind| {
        let place = Place::new(
            elections(&shared(kind).await.url(), &new_namespace()),
            "jobs",
        );
        let tokens = [0, 1, 9, 10, 1 << 53, (1 << 53) + 1, u64::MAX - 1, u64::MAX];
        let mut last = None;
        for token in tokens {
            let before = last.map(|last| term(last, "a", Stage::Began));
            let recorded = place.record(token, "a", Stage::Began).await;
            assert_eq!(recorded, Recorded::Written(before), "{kind}: {token}");
            for lower in tokens.into_iter().filter(|lower| *lower < token) {
                let recorded = place.record(lower, "b", Stage::Ended).await;
                assert_eq!(recorded, Recorded::Refused, "{kind}: {lower} after {token}");
            }
            last = Some(token);
        }
    })
    .await;
}

#[tokio::test]
async fn keys_of_elections_are_any_bytes() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let store = Place::new(elections(&server.url(), &namespace), "");
        let keys = [
            vec![],
            vec![0],
            vec![b'\n', 255],
            vec![b'k'; 64],
            vec![b'k'; 65],
            vec![7; 9_000],
        ];
        let places = keys.map(|key| Place {
            key: Bytes::from(key),
            ..store.clone()
        });
        for (number, place) in (1..).zip(&places) {
            let seen = place.enter("a").await;
            assert_eq!((seen.term, seen.next), (None, Some(id("a"))), "{kind}");
            // The message of this election wakes its watcher.
            let seen = place.look().await;
            let watches = place.changed(None, &seen);
            let begins = place.record(number, "a", Stage::Began);
            let woken = tokio::time::timeout(Duration::from_secs(10), async {
                tokio::join!(watches, begins)
            });
            woken.await.unwrap();
            assert_eq!(place.next().await, None, "{kind}");
        }
    })
    .await;
}

/// More entries than a script removes in one step, and none of them can be seen afterwards.
#[tokio::test]
async fn thousands_of_entries_end_and_leave_nothing() {
    const COUNT: usize = 2_500;
    for kind in RedisKind::ALL {
        let (server, namespace) = (own(kind).await, new_namespace());
        let place = Place::new(elections(&server.url(), &namespace), "jobs");
        let ttl = Duration::from_secs(3);
        place.enter_for("late", 9, LONG).await;
        let names = Vec::from_iter((0..COUNT).map(|number| format!("c-{number}")));
        for names in names.chunks(100) {
            join_all(names.iter().map(|name| place.enter_for(name, 1, ttl))).await;
        }
        until_async("all have ended", async || {
            place.next().await.as_deref() == Some("late")
        })
        .await;
        let line = format!("{{{namespace}}}:keylane:candidates:jobs");
        assert_eq!(
            execute(&server, &format!("ZCARD {line}")).await,
            "1",
            "{kind}"
        );
        // The keys end with the last entry.
        place.withdraw("late").await;
        place
            .enter_for("short", 1, Duration::from_millis(200))
            .await;
        place
            .enter_for("shorter", 1, Duration::from_millis(1))
            .await;
        until_async("nothing is left", async || {
            execute(&server, "DBSIZE").await == "0"
        })
        .await;
        // Only the record of a term stays.
        let token = place.grant().await;
        place.record(token, "a", Stage::Ended).await;
        place.release(token).await;
        let record = format!("{{{namespace}}}:keylane:election:jobs");
        assert_eq!(
            execute(&server, &format!("TTL {record}")).await,
            "-1",
            "{kind}"
        );
        let keys = execute(&server, "DBSIZE").await;
        assert_eq!(keys, "2", "{kind}: the record, and the counter of tokens");
    }
}

/// The order of a rank has 37 bits. At its end, those that enter are ordered by their names.
#[tokio::test]
async fn a_line_that_has_no_more_places_stays_in_its_rank() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let place = Place::new(elections(&server.url(), &namespace), "jobs");
        place.enter_for("z", 1, LONG).await;
        let line = format!("{{{namespace}}}:keylane:candidates:jobs");
        let score = execute(server, &format!("ZSCORE {line} z")).await;
        assert_eq!(score, (1_u64 << 37).to_string(), "{kind}");
        let end = (1_u64 << 38) - 2;
        execute(server, &format!("ZADD {line} {end} z")).await;
        place.enter_for("behind", 2, LONG).await;
        for name in ["a", "c", "b"] {
            place.enter_for(name, 1, LONG).await;
        }
        for name in ["z", "a", "b", "c", "behind"] {
            assert_eq!(place.next().await.as_deref(), Some(name), "{kind}");
            place.withdraw(name).await;
        }
    })
    .await;
}

#[tokio::test]
async fn entries_end_by_the_clock_of_the_server() {
    each_kind(async |kind| {
        let server = Redis::builder(kind).own_clock().start().await.unwrap();
        let place = Place::new(elections(&server.url(), "elections"), "jobs");
        place.enter_for("ever", 2, Duration::MAX).await;
        place.enter_for("hour", 1, Duration::from_secs(1_800)).await;
        assert_eq!(place.next().await.as_deref(), Some("hour"), "{kind}");
        server.set_clock(3_600).unwrap();
        let is_gone = async || place.next().await.as_deref() == Some("ever");
        until_async("the entry has ended", is_gone).await;
    })
    .await;
}

/// A term can end in order, and the next candidate comes, though the server has no memory left.
#[tokio::test]
async fn without_memory_a_term_still_changes_its_stage() {
    for kind in RedisKind::ALL {
        let server = own(kind).await;
        let place = Place::new(elections(&server.url(), "elections"), "jobs");
        let token = place.grant().await;
        place.record(token, "a", Stage::Began).await;
        place.enter("b").await;
        place.enter("c").await;
        execute(&server, "CONFIG SET maxmemory 1").await;
        place.record(token, "a", Stage::Ended).await;
        place.withdraw("b").await;
        place.release(token).await;
        let seen = place.look().await;
        assert_eq!((seen.holder, seen.next), (None, Some(id("c"))), "{kind}");
        assert_eq!(seen.term, Some(term(token, "a", Stage::Ended)), "{kind}");
    }
}
