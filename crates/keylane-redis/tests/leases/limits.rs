//! Limits, bad input, and leftovers.

use std::sync::Arc;
use std::time::Duration;

use keylane_leases::store::{Answer, Claim, LeaseStore, Wish};
use keylane_leases::{Leases, Owner};
use keylane_redis::{ConfigError, Redis, RedisLeases};
use testkit_servers::RedisKind;

use crate::support::{each_kind, execute, own, store};

const CANARY: &str = "c4n4ry-s3cr3t";

#[test]
fn settings_that_make_no_sense_are_refused() {
    let redis = Redis::at("redis://localhost/").unwrap();
    let open = |namespace: &'static str| RedisLeases::open(&redis, namespace);
    assert_eq!(open("").unwrap_err().setting(), "namespace");
    assert_eq!(open("a{}").unwrap_err().setting(), "namespace");
    let none = open("leases").unwrap().slots(0);
    assert_eq!(none.unwrap_err(), ConfigError::zero("slots"));
}

#[tokio::test]
async fn no_password_is_shown() {
    let builder = testkit_servers::Redis::builder(RedisKind::Redis7).password(CANARY);
    let server = builder.start().await.unwrap();
    let store = store(&server.url(), "leases");
    let right = Leases::open(Arc::clone(&store) as Arc<dyn LeaseStore>).unwrap();
    let _held = right.acquire("key", Duration::from_secs(9)).await.unwrap();
    let mut shown = format!("{store:?} {right:?}");
    for url in [
        format!("redis://:{CANARY}-not@127.0.0.1:{}/", server.port()),
        format!("redis://{CANARY}:no@127.0.0.1:{}/", server.port()),
        format!("redis://:{CANARY}@127.0.0.1:1/"),
    ] {
        let wrong = Leases::open(crate::support::store(&url, "leases")).unwrap();
        let error = wrong.try_acquire("key", Duration::from_secs(9)).await;
        let error = error.unwrap_err();
        shown = format!("{shown} {error} {error:?} {wrong:?}");
    }
    assert!(!shown.contains(CANARY), "{shown}");
}

#[tokio::test]
async fn a_lease_that_has_ended_leaves_nothing_behind() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let (store, owner) = (store(&server.url(), "leases"), Owner::random());
        let short = Duration::from_secs(1);
        let wishes = (0..2_500).map(|n| {
            let key = vec![b'k'; n % 100];
            let key = [key, n.to_string().into_bytes()].concat();
            Wish::new(key, if n % 2 == 0 { short } else { short * 100 })
        });
        let wishes = Vec::from_iter(wishes);
        let answers = store.acquire(&owner, &wishes).await.unwrap();
        let claims = wishes.iter().zip(answers).map(|(wish, answer)| {
            let Answer::Granted(token) = answer else {
                panic!("{answer:?}");
            };
            Claim::new(wish.key.clone(), token, wish.ttl)
        });
        let claims = Vec::from_iter(claims);
        // Each for a time of its own.
        let renewed = store.renew(&owner, &claims).await.unwrap();
        assert!(renewed.iter().all(|renewed| *renewed), "{kind}");
        tokio::time::sleep(short * 2).await;
        let renewed = store.renew(&owner, &claims).await.unwrap();
        for (at, renewed) in renewed.into_iter().enumerate() {
            assert_eq!(renewed, at % 2 == 1, "{kind}: lease {at}");
        }
        store.release(&owner, &claims).await.unwrap();
        assert_eq!(
            execute(&server, "KEYS *").await,
            "{leases}:keylane:lease-token",
            "{kind}"
        );
    })
    .await;
}
