//! Tests of the backends on real servers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use keylane_inbox::{LetterKind, NewMessage};
use sqlx::{Connection, MySqlConnection, PgConnection};
use testkit_servers::{MariaDb, Postgres};
use tokio::sync::OnceCell;

use super::backend::{Backend, Dead};
use super::lane::LaneId;
use super::record;
use super::turn::{Answer, Claimed, Fetch, Found, Leave, MessageRef, RoundTrip, WorkerState};
use super::{mysql, postgres};
use crate::database::{Database, Pool};
use crate::tables::Tables;

static POSTGRES: OnceCell<Postgres> = OnceCell::const_new();
static MARIADB: OnceCell<MariaDb> = OnceCell::const_new();

const TTL: Duration = Duration::from_secs(60);

type Shared = Arc<dyn Backend>;

async fn at(address: String) -> Shared {
    let database = Database::connect(&address).await.unwrap();
    // Each of these names must be quoted.
    let tables = Tables::new().prefix("Key_").unwrap();
    database.migrate(&tables).await.unwrap();
    match database.0 {
        Pool::Postgres(pool) => Arc::new(postgres::Postgres::new(pool, &tables)),
        Pool::MySql(pool) => {
            let history = crate::history::History::of(&pool).await.unwrap();
            Arc::new(mysql::MySql::new(pool, &tables, history))
        }
    }
}

async fn on_postgres() -> Shared {
    let server = POSTGRES.get_or_init(async || Postgres::start().await.unwrap());
    at(server.await.create_database().await.unwrap()).await
}

async fn on_mariadb() -> Shared {
    let server = MARIADB.get_or_init(async || MariaDb::start().await.unwrap());
    at(server.await.create_database().await.unwrap()).await
}

macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::on_postgres().await).await;
            })*
        }

        mod on_mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::on_mariadb().await).await;
            })*
        }
    };
}

on_both![
    lanes_are_claimed_with_their_first_messages,
    messages_are_fetched_after_the_last,
    bytes_are_limited,
    bytes_are_shared,
    lanes_behind_a_time_are_claimed,
    a_lane_with_one_message_is_read,
    done_messages_go,
    attempts_are_noted,
    an_empty_lane_goes,
    a_lane_stays_if_its_key_was_accepted_since,
    a_stale_token_does_nothing,
    a_lane_is_claimed_once,
    lanes_of_the_dead_are_free,
    lanes_of_those_who_leave_are_free,
    claims_end_in_an_older_state,
    letters_of_claimed_lanes,
    redriven_letters_are_seen,
    accepts_and_turns_at_once,
];

async fn accept(backend: &Shared, messages: &[NewMessage]) -> Vec<u64> {
    let (items, _) = record::prepare(messages);
    let accepted = backend.accept(&items).await.unwrap();
    accepted
        .iter()
        .map(|accepted| accepted.sequence())
        .collect()
}

fn message(key: &str, payload: &str) -> NewMessage {
    NewMessage::new(key.to_owned(), payload.to_owned())
}

fn lane(key: &str) -> LaneId {
    LaneId::of(key.as_bytes())
}

async fn join(backend: &Shared) -> u64 {
    backend.join("a worker", TTL).await.unwrap()
}

fn claiming(worker: u64, claim: u32, window: u32) -> RoundTrip {
    RoundTrip {
        worker,
        claim,
        window,
        bytes: 1 << 20,
        ..RoundTrip::default()
    }
}

async fn claim(backend: &Shared, worker: u64, count: u32) -> Answer {
    backend.turn(&claiming(worker, count, 10)).await.unwrap()
}

/// Claims the only lane.
async fn claim_one(backend: &Shared, worker: u64) -> Found {
    let answer = claim(backend, worker, 10).await;
    assert_eq!(answer.lanes.len(), 1);
    answer.lanes[0]
}

/// Returns the permanent name of a message of a claimed lane.
async fn name(backend: &Shared, worker: u64, claimed: Claimed, sequence: u64) -> MessageRef {
    let turn = fetches(worker, claimed, sequence - 1, 1);
    let answer = backend.turn(&turn).await.unwrap();
    let mut found = answer.messages.iter();
    let found = found.find(|found| found.message.sequence == sequence);
    let nonce = found.map_or(0, |found| found.nonce);
    MessageRef { sequence, nonce }
}

fn sequences(answer: &Answer, lane: LaneId) -> Vec<u64> {
    let messages = answer.messages.iter().filter(|found| found.lane == lane);
    messages.map(|found| found.message.sequence).collect()
}

fn says(worker: u64) -> RoundTrip {
    RoundTrip {
        worker,
        bytes: 1 << 20,
        ..RoundTrip::default()
    }
}

fn fetches(worker: u64, claimed: Claimed, after: u64, count: u32) -> RoundTrip {
    RoundTrip {
        fetch: vec![Fetch {
            claimed,
            after,
            count,
        }],
        ..says(worker)
    }
}

/// Leaves a lane in which no message waits, as far as this worker knows.
fn left(found: &Found) -> Leave {
    Leave {
        claimed: found.claimed,
        last: found.last,
        place: found.place,
    }
}

async fn waiting(backend: &Shared) -> Vec<u64> {
    let messages = backend.scan(0, 1_000_000, u64::MAX >> 1).await.unwrap();
    messages.iter().map(|message| message.sequence).collect()
}

async fn lanes_are_claimed_with_their_first_messages(backend: Shared) {
    let full = message("b", "2").id("x").version(u64::MAX).header("h", "v");
    let messages = [message("a", "1"), full.clone(), message("a", "3")];
    let all = accept(&backend, &messages).await;
    let worker = join(&backend).await;
    let answer = backend.turn(&claiming(worker, 10, 1)).await.unwrap();
    assert!(answer.lost.is_empty() && answer.stayed.is_empty());
    let found: BTreeSet<LaneId> = answer
        .lanes
        .iter()
        .map(|found| found.claimed.lane)
        .collect();
    assert_eq!(found, BTreeSet::from([lane("a"), lane("b")]));
    assert!(answer.lanes.iter().all(|found| found.crashes == 0));
    assert_eq!(sequences(&answer, lane("a")), [all[0]], "a window of one");
    assert_eq!(sequences(&answer, lane("b")), [all[1]]);
    let of_b = answer.messages.iter().find(|found| found.lane == lane("b"));
    let of_b = of_b.unwrap();
    assert_eq!(of_b.attempts, 0);
    assert!(of_b.message.clone().into_new() == full);
    let claimed: HashMap<_, _> = (answer.lanes.iter())
        .map(|found| (found.claimed.lane, *found))
        .collect();
    for found in backend.lanes_of(worker).await.unwrap() {
        let claimed = claimed[&found.claimed.lane];
        assert_eq!((found.claimed, found.last), (claimed.claimed, claimed.last));
    }
    // There are no others, and none for another worker.
    assert!(claim(&backend, worker, 10).await.lanes.is_empty());
    let other = join(&backend).await;
    assert!(claim(&backend, other, 10).await.lanes.is_empty());
    // A new key is claimed, and nothing of the others comes with it.
    accept(&backend, &[message("c", "4"), message("a", "5")]).await;
    let answer = claim(&backend, other, 10).await;
    assert_eq!((answer.lanes.len(), answer.messages.len()), (1, 1));
    assert_eq!(answer.lanes[0].claimed.lane, lane("c"));
}

async fn messages_are_fetched_after_the_last(backend: Shared) {
    let messages = Vec::from_iter((0..20).map(|n| message("a", &n.to_string())));
    let all = accept(&backend, &messages).await;
    let worker = join(&backend).await;
    let claimed = claim_one(&backend, worker).await.claimed;
    let turn = fetches(worker, claimed, all[9], 4);
    let answer = backend.turn(&turn).await.unwrap();
    assert_eq!(sequences(&answer, lane("a")), all[10..14]);
    assert_eq!(answer.lanes.len(), 1);
    assert_eq!(answer.lanes[0].claimed, claimed);
    let turn = fetches(worker, claimed, all[19], 4);
    let answer = backend.turn(&turn).await.unwrap();
    assert_eq!((answer.lanes.len(), answer.messages.len()), (1, 0));
    // The same together with a claim.
    accept(&backend, &[message("b", "")]).await;
    let turn = RoundTrip {
        claim: 5,
        window: 5,
        ..fetches(worker, claimed, all[17], 4)
    };
    let answer = backend.turn(&turn).await.unwrap();
    assert_eq!(sequences(&answer, lane("a")), all[18..]);
    assert_eq!(sequences(&answer, lane("b")).len(), 1);
    // Not for another worker.
    let other = join(&backend).await;
    let answer = backend.turn(&fetches(other, claimed, 0, 4)).await.unwrap();
    assert!(answer.lanes.is_empty());
}

async fn bytes_are_limited(backend: Shared) {
    let large = "x".repeat(1_000);
    let messages = Vec::from_iter((0..8).map(|n| message(&format!("k{}", n % 2), &large)));
    accept(&backend, &messages).await;
    let worker = join(&backend).await;
    let turn = RoundTrip {
        bytes: 2_500,
        sums: true,
        ..claiming(worker, 10, 10)
    };
    let answer = backend.turn(&turn).await.unwrap();
    assert_eq!(answer.lanes.len(), 2);
    assert_eq!(answer.messages.len(), 3);
    assert_eq!(answer.left_out.len(), 5);
    for found in &answer.lanes {
        let turn = RoundTrip {
            bytes: 1,
            sums: true,
            ..fetches(worker, found.claimed, 0, 3)
        };
        let answer = backend.turn(&turn).await.unwrap();
        assert_eq!(answer.messages.len(), 1, "however large it is");
        assert_eq!(answer.left_out.len(), 2);
    }
}

/// Each message has its share, or all of them share the limit.
async fn bytes_are_shared(backend: Shared) {
    let messages = [message("a", "small"), message("b", &"x".repeat(1_000))];
    accept(&backend, &messages).await;
    let worker = join(&backend).await;
    let turn = RoundTrip {
        bytes: 2_500,
        ..claiming(worker, 2, 2)
    };
    let answer = backend.turn(&turn).await.unwrap();
    assert_eq!(answer.lanes.len(), 2);
    assert!(answer.lanes.iter().all(|found| found.messages == 1));
    assert_eq!(answer.messages.len() + answer.left_out.len(), 2);
    assert_eq!(sequences(&answer, lane("a")).len(), 1);
    assert!(answer.left_out.is_empty() || answer.left_out == [lane("b")]);
}

/// Lanes are claimed in the order in which they became free, after a time or from the first one on.
async fn lanes_behind_a_time_are_claimed(backend: Shared) {
    for key in ["a", "b", "c", "d"] {
        accept(&backend, &[message(key, "")]).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let (worker, other) = (join(&backend).await, join(&backend).await);
    let keys =
        |answer: &Answer| Vec::from_iter(answer.lanes.iter().map(|found| found.claimed.lane));
    assert_eq!(keys(&claim(&backend, other, 1).await), [lane("a")]);
    let second = claim(&backend, worker, 1).await;
    assert_eq!(keys(&second), [lane("b")]);
    let Some(since) = second.free_since else {
        return; // This database has no time for it.
    };
    // It is free again, like one that was committed late.
    backend.leave(other).await.unwrap();
    let much_later = RoundTrip {
        since: since + 1_000.0,
        ..claiming(worker, 10, 1)
    };
    let answer = backend.turn(&much_later).await.unwrap();
    assert_eq!((answer.lanes.len(), answer.free_since), (0, None));
    let behind = |claim| RoundTrip {
        since,
        ..claiming(worker, claim, 1)
    };
    let answer = backend.turn(&behind(1)).await.unwrap();
    assert_eq!(keys(&answer), [lane("c")]);
    assert!(answer.free_since > Some(since));
    let rest = backend.turn(&behind(10)).await.unwrap();
    assert_eq!(
        BTreeSet::from_iter(keys(&rest)),
        BTreeSet::from([lane("a"), lane("d")])
    );
    assert_eq!(claim(&backend, worker, 10).await.free_since, None);
}

async fn a_lane_with_one_message_is_read(backend: Shared) {
    let worker = join(&backend).await;
    let dead = |sequence| Dead {
        sequence,
        attempts: 1,
        kind: LetterKind::Failed,
        error: String::new(),
    };
    // Another one is accepted before the claim, together with it, or as a letter in front of it.
    let alone = accept(&backend, &[message("alone", "")]).await;
    let two = accept(&backend, &[message("two", "1"), message("two", "2")]).await;
    let mut more = accept(&backend, &[message("more", "1")]).await;
    more.extend(accept(&backend, &[message("more", "2")]).await);
    let mut behind = accept(&backend, &[message("behind", "1")]).await;
    backend.settle(&[], &[dead(behind[0])]).await.unwrap();
    behind.extend(accept(&backend, &[message("behind", "2")]).await);
    backend.redrive(&behind[..1]).await.unwrap();
    // Or it is somewhere else.
    let moved = accept(&backend, &[message("moved", "")]).await;
    let gone = accept(&backend, &[message("gone", "")]).await;
    let other = join(&backend).await;
    let all = claim(&backend, other, 10).await;
    let claims = all
        .lanes
        .iter()
        .map(|found| (found.claimed.lane, found.claimed));
    let claims: HashMap<LaneId, Claimed> = claims.collect();
    let (of_moved, of_gone) = (claims[&lane("moved")], claims[&lane("gone")]);
    let turn = RoundTrip {
        attempts: vec![(of_moved, name(&backend, other, of_moved, moved[0]).await, 3)],
        done: vec![(of_gone, name(&backend, other, of_gone, gone[0]).await)],
        ..says(other)
    };
    backend.turn(&turn).await.unwrap();
    let expected = [
        ("alone", alone),
        ("two", two),
        ("more", more),
        ("behind", behind),
        ("moved", moved),
        ("gone", gone),
    ];
    for (key, expected) in &expected {
        assert_eq!(&sequences(&all, lane(key)), expected, "{key}, at first");
    }
    backend.leave(other).await.unwrap();
    let answer = claim(&backend, worker, 10).await;
    for (key, expected) in &expected[..5] {
        assert_eq!(&sequences(&answer, lane(key)), expected, "{key}");
    }
    assert!(sequences(&answer, lane("gone")).is_empty());
    assert_eq!(answer.lanes.len(), 6);
}

async fn done_messages_go(backend: Shared) {
    let all = accept(
        &backend,
        &[message("a", "1"), message("a", "2"), message("b", "3")],
    )
    .await;
    let worker = join(&backend).await;
    let answer = claim(&backend, worker, 10).await;
    let a = answer
        .lanes
        .iter()
        .find(|found| found.claimed.lane == lane("a"));
    let a = a.unwrap().claimed;
    let of = |sequence| {
        let mut found = answer.messages.iter();
        let found = found.find(|found| found.message.sequence == sequence);
        let nonce = found.map_or(0, |found| found.nonce);
        MessageRef { sequence, nonce }
    };
    // One has the number of another message, as a database that goes on from an older state draws
    // it.
    let foreign = MessageRef {
        nonce: of(all[1]).nonce ^ 2,
        ..of(all[1])
    };
    let turn = RoundTrip {
        // One belongs to another lane, and one does not exist.
        done: vec![
            (a, of(all[0])),
            (a, foreign),
            (a, of(all[2])),
            (a, of(77_777)),
        ],
        attempts: vec![(a, foreign, 7)],
        ..says(worker)
    };
    let answer = backend.turn(&turn).await.unwrap();
    assert!(answer.lost.is_empty());
    assert_eq!(waiting(&backend).await, all[1..]);
    let answer = backend.turn(&turn).await.unwrap();
    assert!(answer.lost.is_empty(), "also once more");
}

async fn attempts_are_noted(backend: Shared) {
    let all = accept(&backend, &[message("a", "1"), message("a", "2")]).await;
    let worker = join(&backend).await;
    let claimed = claim_one(&backend, worker).await.claimed;
    let first = name(&backend, worker, claimed, all[0]).await;
    let second = name(&backend, worker, claimed, all[1]).await;
    let turn = RoundTrip {
        attempts: vec![(claimed, first, 3), (claimed, second, 1)],
        ..fetches(worker, claimed, 0, 10)
    };
    let answer = backend.turn(&turn).await.unwrap();
    assert!(answer.lost.is_empty());
    let answer = backend
        .turn(&fetches(worker, claimed, 0, 10))
        .await
        .unwrap();
    let attempts = answer.messages.iter().map(|found| found.attempts);
    assert_eq!(Vec::from_iter(attempts), [3, 1]);
}

async fn an_empty_lane_goes(backend: Shared) {
    let all = accept(&backend, &[message("a", "1"), message("b", "2")]).await;
    let worker = join(&backend).await;
    let answer = claim(&backend, worker, 10).await;
    let a = answer
        .lanes
        .iter()
        .find(|found| found.claimed.lane == lane("a"));
    let a = *a.unwrap();
    let turn = RoundTrip {
        done: vec![(a.claimed, name(&backend, worker, a.claimed, all[0]).await)],
        leave: vec![left(&a)],
        ..says(worker)
    };
    let answer = backend.turn(&turn).await.unwrap();
    assert!(answer.lost.is_empty() && answer.stayed.is_empty());
    assert_eq!(waiting(&backend).await, all[1..]);
    assert_eq!(backend.lanes_of(worker).await.unwrap().len(), 1);
    // It is still not ours, and no answer says that it is gone.
    let is_lost = |answer: Answer| {
        let lane = [lane("a")];
        (&answer.lost[..], &answer.stayed[..]) == (&lane[..], &lane[..])
    };
    assert!(is_lost(backend.turn(&turn).await.unwrap()));
    // The key comes back, under a higher token.
    let again = accept(&backend, &[message("a", "3")]).await;
    assert!(again[0] > all[1]);
    let found = claim_one(&backend, worker).await;
    assert!(found.claimed.token > a.claimed.token);
    assert!(
        is_lost(backend.turn(&turn).await.unwrap()),
        "the claim before"
    );
    assert_eq!(waiting(&backend).await, [all[1], again[0]]);
}

async fn a_lane_stays_if_its_key_was_accepted_since(backend: Shared) {
    let all = accept(&backend, &[message("a", "1")]).await;
    let worker = join(&backend).await;
    let found = claim_one(&backend, worker).await;
    let claimed = found.claimed;
    let later = accept(&backend, &[message("a", "2")]).await;
    let turn = RoundTrip {
        done: vec![(claimed, name(&backend, worker, claimed, all[0]).await)],
        leave: vec![left(&found)],
        ..fetches(worker, claimed, all[0], 10)
    };
    let answer = backend.turn(&turn).await.unwrap();
    assert!(answer.lost.is_empty());
    assert_eq!(answer.stayed, [lane("a")]);
    assert_eq!(sequences(&answer, lane("a")), later);
    let turn = RoundTrip {
        done: vec![(claimed, name(&backend, worker, claimed, later[0]).await)],
        leave: vec![left(&answer.lanes[0])],
        ..says(worker)
    };
    let answer = backend.turn(&turn).await.unwrap();
    assert!(answer.stayed.is_empty());
    assert!(backend.lanes_of(worker).await.unwrap().is_empty());
}

async fn a_stale_token_does_nothing(backend: Shared) {
    let all = accept(&backend, &[message("a", "1"), message("a", "2")]).await;
    let (worker, other) = (join(&backend).await, join(&backend).await);
    let claimed = claim_one(&backend, worker).await.claimed;
    let first = name(&backend, worker, claimed, all[0]).await;
    let second = name(&backend, worker, claimed, all[1]).await;
    backend.leave(worker).await.unwrap();
    let found = claim_one(&backend, other).await;
    assert!(found.claimed.token > claimed.token);
    let says = |worker, claimed| RoundTrip {
        done: vec![(claimed, first)],
        attempts: vec![(claimed, second, 9)],
        // It is at the same place.
        leave: vec![Leave {
            claimed,
            ..left(&found)
        }],
        ..fetches(worker, claimed, 0, 10)
    };
    // By the earlier owner; by the same worker under the current token; and by the other under the
    // earlier token.
    let mix = |worker, token| {
        let claimed = Claimed {
            lane: lane("a"),
            token,
        };
        says(worker, claimed)
    };
    let a = [lane("a")];
    for turn in [
        says(worker, claimed),
        mix(worker, found.claimed.token),
        mix(other, claimed.token),
    ] {
        let answer = backend.turn(&turn).await.unwrap();
        assert_eq!((&answer.lost[..], &answer.stayed[..]), (&a[..], &a[..]));
        assert!(answer.lanes.is_empty());
    }
    assert_eq!(waiting(&backend).await, all);
    let answer = backend
        .turn(&fetches(other, found.claimed, 0, 10))
        .await
        .unwrap();
    assert!(answer.messages.iter().all(|message| message.attempts == 0));
    assert_eq!(answer.lanes[0].crashes, 0);
}

async fn a_lane_is_claimed_once(backend: Shared) {
    let messages = Vec::from_iter((0..200).map(|n| message(&format!("key {n}"), "")));
    accept(&backend, &messages).await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let backend = Arc::clone(&backend);
        tasks.push(tokio::spawn(async move {
            let worker = join(&backend).await;
            let mut claimed = Vec::new();
            let mut idle = 0;
            while idle < 3 {
                let answer = claim(&backend, worker, 7).await;
                idle += u32::from(answer.lanes.is_empty());
                assert_eq!(answer.messages.len(), answer.lanes.len());
                claimed.extend(answer.lanes.iter().map(|found| found.claimed.lane));
            }
            claimed
        }));
    }
    let mut claimed = Vec::new();
    for task in tasks {
        claimed.extend(task.await.unwrap());
    }
    assert_eq!(claimed.len(), 200);
    assert_eq!(BTreeSet::from_iter(claimed).len(), 200);
}

async fn lanes_of_the_dead_are_free(backend: Shared) {
    let messages = Vec::from_iter((0..5).map(|n| message(&format!("key {n}"), "")));
    accept(&backend, &messages).await;
    let (worker, alive) = (join(&backend).await, join(&backend).await);
    assert_eq!(claim(&backend, alive, 2).await.lanes.len(), 2);
    assert_eq!(claim(&backend, worker, 10).await.lanes.len(), 3);
    assert_eq!(backend.free_dead(10).await.unwrap(), 0);
    assert_eq!(
        backend.renew(worker, Duration::ZERO, 0).await.unwrap(),
        WorkerState::Alive
    );
    assert_eq!(
        backend.renew(worker, TTL, 0).await.unwrap(),
        WorkerState::RunOut
    );
    // One part after the other.
    assert_eq!(backend.free_dead(2).await.unwrap(), 2);
    assert_eq!(backend.lanes_of(worker).await.unwrap().len(), 1);
    assert_eq!(backend.free_dead(2).await.unwrap(), 1);
    assert_eq!(backend.free_dead(2).await.unwrap(), 0);
    assert_eq!(
        backend.renew(worker, TTL, 0).await.unwrap(),
        WorkerState::RunOut
    );
    let answer = claim(&backend, alive, 10).await;
    assert_eq!(answer.lanes.len(), 3);
    assert!(answer.lanes.iter().all(|found| found.crashes == 1));
    assert_eq!(backend.lanes_of(alive).await.unwrap().len(), 5);
    assert_eq!(
        backend.renew(alive, TTL, 0).await.unwrap(),
        WorkerState::Alive
    );
}

async fn lanes_of_those_who_leave_are_free(backend: Shared) {
    accept(&backend, &[message("a", "1")]).await;
    let (worker, other) = (join(&backend).await, join(&backend).await);
    claim_one(&backend, worker).await;
    backend.leave(worker).await.unwrap();
    backend.leave(worker).await.unwrap();
    assert_eq!(
        backend.renew(worker, TTL, 0).await.unwrap(),
        WorkerState::RunOut
    );
    assert_eq!(claim_one(&backend, other).await.crashes, 0);
}

/// A restored backup has fewer renewals than the worker has answers for.
async fn claims_end_in_an_older_state(backend: Shared) {
    let worker = join(&backend).await;
    // The database may have one renewal more than the worker has answers for.
    for heard in [0, 1, 1] {
        let standing = backend.renew(worker, TTL, heard).await.unwrap();
        assert_eq!(standing, WorkerState::Alive);
    }
    let standing = backend.renew(worker, TTL, 4).await.unwrap();
    assert_eq!(standing, WorkerState::RunOut);
}

async fn letters_of_claimed_lanes(backend: Shared) {
    let all = accept(&backend, &[message("a", "1"), message("a", "2")]).await;
    let (worker, other) = (join(&backend).await, join(&backend).await);
    let claimed = claim_one(&backend, worker).await.claimed;
    let dead = |sequence| Dead {
        sequence,
        attempts: 3,
        kind: LetterKind::Failed,
        error: "no".to_owned(),
    };
    let first = name(&backend, worker, claimed, all[0]).await;
    let stale = Claimed {
        token: claimed.token - 1,
        ..claimed
    };
    assert!(
        !backend
            .dead_letter(other, claimed, first, &dead(all[0]))
            .await
            .unwrap()
    );
    assert!(
        !backend
            .dead_letter(worker, stale, first, &dead(all[0]))
            .await
            .unwrap()
    );
    assert_eq!(waiting(&backend).await, all);
    for _ in 0..2 {
        assert!(
            backend
                .dead_letter(worker, claimed, first, &dead(all[0]))
                .await
                .unwrap()
        );
        assert_eq!(waiting(&backend).await, all[1..]);
    }
    let letter = backend.letters(all[0] - 1, 1).await.unwrap().remove(0);
    assert_eq!((letter.attempts, &letter.error[..]), (3, "no"));
}

async fn redriven_letters_are_seen(backend: Shared) {
    let all = accept(&backend, &[message("a", "1"), message("a", "2")]).await;
    let worker = join(&backend).await;
    let found = claim_one(&backend, worker).await;
    let dead = Dead {
        sequence: all[0],
        attempts: 1,
        kind: LetterKind::Failed,
        error: String::new(),
    };
    backend
        .settle(&[], std::slice::from_ref(&dead))
        .await
        .unwrap();
    // In front of the claimed message.
    backend.redrive(&[all[0]]).await.unwrap();
    let turn = fetches(worker, found.claimed, 0, 10);
    let answer = backend.turn(&turn).await.unwrap();
    assert_eq!(sequences(&answer, lane("a")), all);
    assert_ne!(answer.lanes[0].redriven, found.redriven);
    assert_ne!(answer.lanes[0].last, found.last);
    // After its lane is gone.
    backend.settle(&[all[1]], &[dead]).await.unwrap();
    let turn = RoundTrip {
        leave: vec![left(&answer.lanes[0])],
        ..says(worker)
    };
    assert!(backend.turn(&turn).await.unwrap().stayed.is_empty());
    assert!(backend.lanes_of(worker).await.unwrap().is_empty());
    assert!(claim(&backend, worker, 10).await.lanes.is_empty());
    backend.redrive(&[all[0]]).await.unwrap();
    let answer = claim(&backend, worker, 10).await;
    assert_eq!(sequences(&answer, lane("a")), all[..1]);
}

/// No message is lost, and none is handed over twice or out of order, while keys come and go.
async fn accepts_and_turns_at_once(backend: Shared) {
    const EACH: usize = 150;
    let mut producers = Vec::new();
    for producer in 0..3 {
        let backend = Arc::clone(&backend);
        producers.push(tokio::spawn(async move {
            for n in 0..EACH {
                let message =
                    |key: usize| message(&format!("key {key}"), &format!("{producer} {n}"));
                // The order of the keys is not that of the lanes.
                let messages = [message(n % 5), message((n + producer) % 3)];
                let (items, _) = record::prepare(&messages);
                while let Err(error) = backend.accept(&items).await {
                    assert_eq!(error.kind(), crate::error::ErrorKind::Conflict, "{error}");
                }
            }
        }));
    }
    let mut consumers = Vec::new();
    let handed = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for _ in 0..3 {
        let (backend, handed) = (Arc::clone(&backend), Arc::clone(&handed));
        consumers.push(tokio::spawn(async move {
            let mut worker = join(&backend).await;
            let (mut seen, mut rounds) = (Vec::new(), 0);
            let mut turn = claiming(worker, 2, 4);
            while handed.load(std::sync::atomic::Ordering::SeqCst) < 3 * 2 * EACH {
                let answer = match backend.turn(&turn).await {
                    Ok(answer) => answer,
                    Err(error) => {
                        assert_eq!(error.kind(), crate::error::ErrorKind::Conflict, "{error}");
                        continue;
                    }
                };
                // All found messages are done, and a lane without messages is left.
                turn = claiming(worker, 2, 4);
                for found in &answer.lanes {
                    let brought = sequences(&answer, found.claimed.lane);
                    let named = answer.messages.iter();
                    let named = named.filter(|one| one.lane == found.claimed.lane);
                    turn.done.extend(named.map(|one| {
                        let (sequence, nonce) = (one.message.sequence, one.nonce);
                        (found.claimed, MessageRef { sequence, nonce })
                    }));
                    if brought.is_empty() {
                        turn.leave.push(left(found));
                    }
                    handed.fetch_add(brought.len(), std::sync::atomic::Ordering::SeqCst);
                    seen.extend(brought.into_iter().map(|n| (found.claimed, n)));
                }
                rounds += 1;
                if rounds == 8 {
                    rounds = 0;
                    // The worker leaves after its last report, and another one comes.
                    turn.claim = 0;
                    while backend.turn(&turn).await.is_err() {}
                    while backend.leave(worker).await.is_err() {}
                    worker = join(&backend).await;
                    turn = claiming(worker, 2, 4);
                    continue;
                }
                for found in backend.lanes_of(worker).await.unwrap() {
                    let after = turn.done.iter().filter(|done| done.0 == found.claimed);
                    let after = after.map(|done| done.1.sequence).max().unwrap_or(0);
                    let is_left = turn.leave.iter().any(|left| left.claimed == found.claimed);
                    if !is_left {
                        turn.fetch.push(Fetch {
                            claimed: found.claimed,
                            after,
                            count: 4,
                        });
                    }
                }
            }
            seen
        }));
    }
    for producer in producers {
        producer.await.unwrap();
    }
    let mut seen = Vec::new();
    for consumer in consumers {
        let consumer = tokio::time::timeout(Duration::from_secs(60), consumer);
        seen.extend(consumer.await.expect("nothing is lost").unwrap());
    }
    let mut by_lane = HashMap::<LaneId, Vec<(u64, u64)>>::new();
    for (claimed, sequence) in seen {
        by_lane
            .entry(claimed.lane)
            .or_default()
            .push((claimed.token, sequence));
    }
    for (lane, mut seen) in by_lane {
        seen.sort_unstable();
        assert!(
            seen.is_sorted_by(|a, b| a.1 < b.1),
            "{lane:?}: in order from claim to claim, and each once"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_enter_a_history_of_postgres_at_once() {
    let server = POSTGRES.get_or_init(async || Postgres::start().await.unwrap());
    let address = server.await.create_database().await.unwrap();
    let backend = at(address.clone()).await;
    many_enter_at_once(backend, async || {
        let mut connection = PgConnection::connect(&address).await.unwrap();
        let forget = sqlx::raw_sql("delete from \"Key_history\"");
        forget.execute(&mut connection).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_enter_a_history_of_mariadb_at_once() {
    let server = MARIADB.get_or_init(async || MariaDb::start().await.unwrap());
    let address = server.await.create_database().await.unwrap();
    let backend = at(address.clone()).await;
    many_enter_at_once(backend, async || {
        let mut connection = MySqlConnection::connect(&address).await.unwrap();
        let forget = sqlx::raw_sql("delete from Key_history");
        forget.execute(&mut connection).await.unwrap();
    })
    .await;
}

/// Workers join a database that does not know its history yet, while other workers take turns.
async fn many_enter_at_once(backend: Shared, forget: impl AsyncFn()) {
    const ROUNDS: usize = 40;
    const KEYS: usize = 50;
    let messages = Vec::from_iter((0..KEYS).map(|n| message(&format!("key {n}"), "")));
    accept(&backend, &messages).await;
    let (stop, is_over) = tokio::sync::watch::channel(false);
    let mut older = Vec::new();
    for _ in 0..2 {
        let (backend, is_over) = (Arc::clone(&backend), is_over.clone());
        older.push(tokio::spawn(async move {
            while !*is_over.borrow() {
                claims_and_leaves(&backend).await;
            }
        }));
    }
    for _ in 0..ROUNDS {
        forget().await;
        let mut joined = Vec::new();
        for _ in 0..8 {
            let backend = Arc::clone(&backend);
            joined.push(tokio::spawn(
                async move { claims_and_leaves(&backend).await },
            ));
        }
        for one in joined {
            one.await.unwrap();
        }
    }
    stop.send_replace(true);
    for one in older {
        one.await.unwrap();
    }
    let worker = join(&backend).await;
    let answer = claim(&backend, worker, 2 * KEYS as u32).await;
    assert_eq!((answer.lanes.len(), answer.messages.len()), (KEYS, KEYS));
}

/// A short life of a worker. Turns may conflict with the statements that enter a history; joining
/// never fails.
async fn claims_and_leaves(backend: &Shared) {
    let worker = join(backend).await;
    for _ in 0..2 {
        let turn = backend.turn(&claiming(worker, 7, 10)).await;
        if let Err(error) = turn {
            assert_eq!(error.kind(), crate::error::ErrorKind::Conflict, "{error}");
        }
    }
    while backend.leave(worker).await.is_err() {}
}

/// A turn waits in its middle. Meanwhile another worker claims a lane, handles its message, and
/// leaves. The turn does not return the message, which is done by then, although it existed when
/// the turn began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_meanwhile_is_not_brought() {
    let server = POSTGRES.get_or_init(async || Postgres::start().await.unwrap());
    let address = server.await.create_database().await.unwrap();
    let backend = at(address.clone()).await;
    let (slow, fast) = (join(&backend).await, join(&backend).await);
    let blocked = accept(&backend, &[message("blocked", "")]).await[0];
    let claimed = claim_one(&backend, slow).await.claimed;
    let blocked_name = name(&backend, slow, claimed, blocked).await;
    accept(&backend, &[message("shared", "1"), message("shared", "2")]).await;

    let mut other = PgConnection::connect(&address).await.unwrap();
    let lock = "begin; select from \"Key_lanes\" where worker is not null for update";
    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    let turn = RoundTrip {
        done: vec![(claimed, blocked_name)],
        ..claiming(slow, 10, 10)
    };
    let waits = tokio::spawn({
        let backend = Arc::clone(&backend);
        async move { backend.turn(&turn).await.unwrap() }
    });
    until_one_waits(&mut other).await;
    let shared = claim_one(&backend, fast).await.claimed;
    let first = waiting(&backend).await[1];
    let turn = RoundTrip {
        done: vec![(shared, name(&backend, fast, shared, first).await)],
        ..says(fast)
    };
    backend.turn(&turn).await.unwrap();
    backend.leave(fast).await.unwrap();

    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    let answer = waits.await.unwrap();
    assert!(answer.lost.is_empty());
    assert!(!sequences(&answer, lane("shared")).contains(&first));
    // It is there for the next turn.
    let answer = claim(&backend, slow, 10).await;
    assert_eq!(sequences(&answer, lane("shared")), [first + 1]);
}

async fn until_one_waits(connection: &mut PgConnection) {
    let waiting_for_locks = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    loop {
        let count = sqlx::query_scalar::<_, i64>(waiting_for_locks);
        if count.fetch_one(&mut *connection).await.unwrap() == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A message changes while the turn that removes it waits for its lock: the message is removed all
/// the same, and so is its lane. Without the lane no worker would find it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_changes_meanwhile_is_removed() {
    let server = POSTGRES.get_or_init(async || Postgres::start().await.unwrap());
    let address = server.await.create_database().await.unwrap();
    let backend = at(address.clone()).await;
    let worker = join(&backend).await;
    let sequence = accept(&backend, &[message("a", "")]).await[0];
    let found = claim_one(&backend, worker).await;
    let named = name(&backend, worker, found.claimed, sequence).await;

    let mut other = PgConnection::connect(&address).await.unwrap();
    let note = "begin; update \"Key_messages\" set attempts = attempts + 1";
    sqlx::raw_sql(note).execute(&mut other).await.unwrap();
    let turn = RoundTrip {
        done: vec![(found.claimed, named)],
        leave: vec![left(&found)],
        ..says(worker)
    };
    let waits = tokio::spawn({
        let backend = Arc::clone(&backend);
        async move { backend.turn(&turn).await.unwrap() }
    });
    until_one_waits(&mut other).await;
    sqlx::raw_sql("commit").execute(&mut other).await.unwrap();
    let answer = waits.await.unwrap();
    assert!(answer.lost.is_empty() && answer.stayed.is_empty());
    assert!(waiting(&backend).await.is_empty());
    assert!(backend.lanes_of(worker).await.unwrap().is_empty());
}
