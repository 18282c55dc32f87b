//! The clock of the server is set while leases are held.

use std::time::Duration;

use keylane_leases::error::LeaseLost;
use keylane_leases::store::{Answer, Claim, LeaseStore, Wish};
use keylane_leases::{Owner, Token};
use testkit_servers::{Redis, RedisKind};
use tokio::time::{sleep, timeout};

use crate::support::{answered, each_kind, leases, store};

const TTL: Duration = Duration::from_secs(6);
const HOUR: i64 = 3_600;

async fn with_clock(kind: RedisKind) -> Redis {
    Redis::builder(kind).own_clock().start().await.unwrap()
}

/// A lease that is renewed goes on, and ends when it would. Only a lease whose holder died before
/// the clock was set back ends later, by that amount.
#[tokio::test]
async fn a_clock_that_is_set_back_keeps_no_lease_that_is_renewed() {
    each_kind(async |kind| {
        let server = with_clock(kind).await;
        let holder = leases(&server.url(), "leases");
        let lease = holder.acquire("held", TTL).await.unwrap();
        let (store, owner) = (store(&server.url(), "leases"), Owner::random());
        let token = granted(&*store, &owner, "key").await.unwrap();
        server.set_clock(-HOUR).unwrap();
        // A server may look at it a few times a second only.
        sleep(TTL / 4).await;
        let claims = [Claim::new("key", token, TTL)];
        assert_eq!(store.renew(&owner, &claims).await, Ok(vec![true]), "{kind}");
        // Its holder renews it no more.
        let other = Owner::random();
        let left = granted(&*store, &other, "key").await.unwrap_err();
        assert!(left <= TTL, "{kind}: {left:?}");
        sleep(TTL + Duration::from_millis(100)).await;
        let next = granted(&*store, &other, "key").await.unwrap();
        assert!(next > token, "{kind}");
        sleep(TTL).await;
        lease.check().unwrap();
        drop(lease);
        let there = leases(&server.url(), "leases");
        let again = timeout(TTL * 5, there.acquire("held", TTL)).await;
        again.expect("the key is free").unwrap().release().await;
    })
    .await;
}

/// Leases end at once, and their holders learn of it. Tokens still grow, and go on when the clock
/// is right again.
#[tokio::test]
async fn a_clock_that_is_set_forward_ends_leases() {
    each_kind(async |kind| {
        let server = with_clock(kind).await;
        let (here, there) = (
            leases(&server.url(), "leases"),
            leases(&server.url(), "leases"),
        );
        let lease = here.acquire("key", TTL).await.unwrap();
        server.set_clock(HOUR).unwrap();
        // Waits, since the server may look at its clock a few times a second only.
        let next = answered(|| there.acquire("key", TTL)).await.unwrap();
        assert!(next.token() > lease.token(), "{kind}");
        let lost = timeout(TTL * 5, lease.lost()).await.expect("it is told");
        assert_eq!(lost, LeaseLost::TakenOver, "{kind}");
        server.set_clock(0).unwrap();
        sleep(TTL).await;
        next.check().unwrap();
        let last = next.token();
        next.release().await;
        let again = answered(|| here.acquire("key", TTL)).await.unwrap();
        assert!(again.token() > last, "{kind}");
    })
    .await;
}

/// A server that was emptied has forgotten its leases: holders learn of it, and do not end the next
/// lease.
#[tokio::test]
async fn a_server_that_was_emptied_has_other_leases() {
    each_kind(async |kind| {
        let server = with_clock(kind).await;
        let store = store(&server.url(), "leases");
        let (owner, other) = (Owner::random(), Owner::random());
        let token = granted(&*store, &owner, "key").await.unwrap();
        server.execute(&["FLUSHALL"]).await.unwrap();
        let claims = [Claim::new("key", token, TTL)];
        assert_eq!(
            store.renew(&owner, &claims).await,
            Ok(vec![false]),
            "{kind}"
        );
        let next = granted(&*store, &other, "key").await.unwrap();
        assert!(next > token, "{kind}");
        store.release(&owner, &claims).await.unwrap();
        let claims = [Claim::new("key", next, TTL)];
        assert_eq!(store.renew(&other, &claims).await, Ok(vec![true]), "{kind}");
    })
    .await;
}

/// Returns the token of a grant, or how long another owner has the lease.
async fn granted(store: &impl LeaseStore, owner: &Owner, key: &str) -> Result<Token, Duration> {
    let wishes = [Wish::new(key.to_owned(), TTL)];
    match store.acquire(owner, &wishes).await.unwrap()[0] {
        Answer::Granted(token) => Ok(token),
        Answer::Taken { remaining } => Err(remaining),
        other => panic!("{other:?}"),
    }
}

/// In the year 2261 a microsecond is more than a script can count to exactly.
#[tokio::test]
async fn tokens_are_told_apart_for_ever() {
    each_kind(async |kind| {
        let server = with_clock(kind).await;
        server.set_clock(7_389_000_000).unwrap();
        let (store, owner) = (store(&server.url(), "leases"), Owner::random());
        let wishes = Vec::from_iter((0..2_500).map(|n| Wish::new(n.to_string(), TTL)));
        let answers = store.acquire(&owner, &wishes).await.unwrap();
        let tokens = Vec::from_iter(answers.into_iter().map(|answer| match answer {
            Answer::Granted(Token(token)) => token,
            taken => panic!("{taken:?}"),
        }));
        assert!(tokens[0] > 1 << 53, "{kind}");
        assert!(tokens.is_sorted_by(|one, next| one < next), "{kind}");
        let claims = wishes.iter().zip(&tokens);
        let claims = claims.map(|(wish, token)| Claim::new(wish.key.clone(), Token(*token), TTL));
        let claims = Vec::from_iter(claims);
        assert_eq!(store.renew(&owner, &claims).await, Ok(vec![true; 2_500]));
    })
    .await;
}
