//! Ids and tokens at the limits of their types. Lua's numbers are exact only up to 2^53.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use keylane::source::{LetterCause, Source as _, SourceLetter};
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, Holder, LeaseStore, Wish};
use keylane_leases::{Bytes, Leases, Owner, Token};
use keylane_redis::StreamTrim;
use proptest::collection::btree_set;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use redis::Value;
use testkit_servers::RedisKind;

use crate::support::{Client, Driven, builder, new_name, payloads, shared, texts, until};

/// Grants everything, each time with the next token.
struct Granting(AtomicU64);

#[async_trait]
impl LeaseStore for Granting {
    async fn acquire(&self, _: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        let grant = |_| Answer::Granted(Token(self.0.fetch_add(1, Ordering::Relaxed)));
        Ok(wishes.iter().map(grant).collect())
    }

    async fn renew(&self, _: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        Ok(vec![true; claims.len()])
    }

    async fn release(&self, _: &Owner, _: &[Claim]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn held_by(&self, _: &Bytes) -> Result<Option<Holder>, StoreError> {
        Ok(None)
    }
}

fn granting(first: u64) -> Leases {
    Leases::open(Arc::new(Granting(AtomicU64::new(first)))).unwrap()
}

const EXACT: u64 = 1 << 53;

/// Numbers around limits.
fn number() -> impl Strategy<Value = u64> {
    let near = vec![0, 9, 99, EXACT, i64::MAX as u64, 10_u64.pow(19), u64::MAX];
    let far = select(&[0_u64, 1, 2, 3][..]);
    (select(near), far, any::<bool>()).prop_map(|(near, far, above)| match above {
        true => near.saturating_add(far),
        false => near.saturating_sub(far),
    })
}

type Ids = std::collections::BTreeSet<(u64, u64)>;

fn ids() -> impl Strategy<Value = Ids> {
    let id = (number(), number()).prop_filter("no entry has it", |id| *id != (0, 0));
    // Neighbors that are equal as doubles.
    let many = (number(), number(), 2..9_u64).prop_map(|(ms, first, count)| {
        (0..count)
            .filter_map(|more| Some((ms, first.checked_add(more)?)))
            .filter(|id| *id != (0, 0))
            .collect::<Ids>()
    });
    (btree_set(id, 1..6), many).prop_map(|(some, many)| some.into_iter().chain(many).collect())
}

fn text((ms, number): (u64, u64)) -> String {
    format!("{ms}-{number}")
}

/// The same cases in each run.
fn cases(count: usize) -> Vec<(Ids, prop::sample::Index, u64)> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let case = (ids(), any::<prop::sample::Index>(), number());
    let mut case = || case.new_tree(&mut runner).unwrap().current();
    (0..count).map(|_| case()).collect()
}

/// All scripts handle any ids, under any token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_ids_are_handed_over_counted_acked_and_cut_off() {
    for kind in RedisKind::ALL {
        for (ids, had, token) in cases(24) {
            let case = format!("{kind}: {ids:?}, {had:?}, {token}");
            let had = had.index(ids.len() + 1);
            let token = token.min(u64::MAX - 8);
            each_script(kind, &ids, had, token, &case).await;
        }
    }
}

async fn each_script(kind: RedisKind, ids: &Ids, had: usize, token: u64, case: &str) {
    println!("{case}");
    let server = shared(kind).await;
    let (client, name) = (Client::to(&server).await, new_name("ends"));
    let dead = format!("{name}.dead");
    let texts: Vec<String> = ids.iter().copied().map(text).collect();
    let mut steps = redis::pipe();
    for id in &texts {
        steps.cmd("XADD").arg(&name).arg(id).arg("payload").arg(id);
    }
    // Another group has read the first ones.
    steps
        .cmd("XGROUP")
        .arg("CREATE")
        .arg(&name)
        .arg("other")
        .arg(0);
    client.steps(&steps).await;
    let other = async |count: usize| {
        if count > 0 {
            let count = count.to_string();
            let read = ["XREADGROUP", "GROUP", "other", "c", "COUNT", &count];
            let read = [&read[..], &["STREAMS", &name, ">"]].concat();
            let _: Value = client.run(&read).await;
        }
    };
    other(had).await;
    for id in &texts[..had] {
        let _: u64 = client.run(&["XACK", &name, "other", id]).await;
    }
    let length = async || client.run::<usize>(&["XLEN", &name]).await;

    let leases = granting(token);
    let source = || {
        let builder = builder(&server.url(), "g").stream(name.clone());
        let builder = builder.leases(leases.clone()).dead_letters(dead.clone());
        let builder = builder.trim(StreamTrim::Settled);
        builder
            .trim_every(Duration::from_millis(5))
            .build()
            .unwrap()
    };
    let mut first = Driven::open(source()).await;
    let handed = first.receive(texts.len()).await;
    assert_eq!(payloads(&handed), texts, "{case}");
    let guard = first.0.start_guard().unwrap();
    let one = handed[0].position;
    until("the attempt is noted", async || {
        first.once(0, Duration::from_millis(1)).await;
        guard.starts(0, &one, 2).is_ok()
    })
    .await;
    drop(first);

    // All of them are pending, and come again.
    let mut second = Driven::open(source()).await;
    let handed = second.receive(texts.len()).await;
    assert_eq!(payloads(&handed), texts, "{case}");
    assert_eq!(handed[0].attempts, 2, "{case}");
    let (last, others) = handed.split_last().unwrap();
    let why = SourceLetter::new(last.position, 1, LetterCause::Failed, "no".to_owned());
    second.0.dead_letter(why).await.unwrap();
    second.settle(std::slice::from_ref(last)).await;
    second.ack(others).await;
    assert_eq!(client.run::<u64>(&["XLEN", &dead]).await, 1, "{case}");
    assert_eq!(client.left(&name, "g").await, 0, "{case}");
    let left = texts.len() - had;
    until("what both have had is cut off", async || {
        length().await <= left
    })
    .await;
    second.receive_for(Duration::from_millis(30)).await;
    assert_eq!(
        length().await,
        left,
        "{case}: the other group has not had it"
    );
    other(left).await;
    for id in &texts[had..] {
        let _: u64 = client.run(&["XACK", &name, "other", id]).await;
    }
    until("everything is cut off", async || length().await == 0).await;
    second.0.close().await.unwrap();
}

/// An entry with the last possible id holds up neither its stream nor another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_id_stops_no_other_stream() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("last"));
        let other = format!("{name}-other");
        let last = text((u64::MAX, u64::MAX));
        let _: String = client.run(&["XADD", &name, &last, "payload", "0"]).await;
        let source = || {
            builder(&server.url(), "g")
                .stream(name.clone())
                .stream(other.clone())
                .build()
                .unwrap()
        };
        for round in 0..3 {
            let mut source = Driven::open(source()).await;
            if round < 2 {
                let handed = source.receive(1).await;
                assert_eq!(payloads(&handed), texts([0]), "{kind}");
                if round == 1 {
                    source.ack(&handed).await;
                }
            }
            client.add_all(&other, 1..4).await;
            let handed = source.receive(3).await;
            assert_eq!(payloads(&handed), texts(1..4), "{kind}");
            source.ack(&handed).await;
            source.0.close().await.unwrap();
        }
    }
}

/// A count that an operator has set to its maximum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_highest_count_is_an_attempt_too_many() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("count"));
        let id = client.add(&name, "a", "0").await;
        let _: Value = client.run(&["XGROUP", "CREATE", &name, "g", "0"]).await;
        let read = ["XREADGROUP", "GROUP", "g", "c", "STREAMS", &name, ">"];
        let _: Value = client.run(&read).await;
        let most = i64::MAX.to_string();
        let claim = ["XCLAIM", &name, "g", "c", "0", &id, "RETRYCOUNT", &most];
        let _: Value = client.run(&claim).await;
        let source = builder(&server.url(), "g").stream(name.clone());
        let mut source = Driven::open(source.build().unwrap()).await;
        let handed = source.receive(1).await;
        assert_eq!(handed[0].attempts, u32::MAX, "{kind}");
        source.ack(&handed).await;
        assert_eq!(client.left(&name, "g").await, 0, "{kind}");
    }
}
