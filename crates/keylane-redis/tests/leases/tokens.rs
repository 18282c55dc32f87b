//! Tokens, as numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylane_leases::store::{Answer, Claim, LeaseStore, Wish};
use keylane_leases::{Owner, Token};
use testkit_servers::RedisKind;

use crate::support::{execute, new_namespace, shared, store};

const TTL: Duration = Duration::from_secs(60);

async fn granted(store: &impl LeaseStore, keys: impl IntoIterator<Item = String>) -> Vec<Token> {
    let wishes = Vec::from_iter(keys.into_iter().map(|key| Wish::new(key, TTL)));
    let answers = store.acquire(&Owner::random(), &wishes).await.unwrap();
    let token = |answer| match answer {
        Answer::Granted(token) => token,
        taken => panic!("{taken:?}"),
    };
    answers.into_iter().map(token).collect()
}

#[tokio::test]
async fn tokens_are_times_that_scripts_can_count_with() {
    for kind in RedisKind::ALL {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let store = store(&server.url(), &namespace);
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let tokens = granted(&*store, (0..2_500).map(|n| n.to_string())).await;
        let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!(tokens.is_sorted_by(|one, next| one < next), "{kind}");
        let (first, last) = (tokens[0].0, tokens[2_499].0);
        assert!(u128::from(first) >= before.as_micros(), "{kind}: {first}");
        // There can be one each microsecond at most.
        assert!(
            u128::from(last) <= after.as_micros() + 1_000,
            "{kind}: {last}"
        );
        // 2^53 microseconds end in the year 2255.
        assert!(last < 1 << 53, "{kind}: {last}");
    }
}

/// A clock that was set back: the last token is ahead of it, and each later one is one more, up to
/// the end of the type.
#[tokio::test]
async fn a_clock_that_is_behind_changes_nothing() {
    for kind in RedisKind::ALL {
        for last in [
            (1 << 53) - 2,
            1 << 53,
            i64::MAX as u64 - 1,
            9_999_999_999_999_999_999,
            u64::MAX - 3,
        ] {
            let (server, namespace) = (shared(kind).await, new_namespace());
            let store = store(&server.url(), &namespace);
            execute(
                server,
                &format!("SET {{{namespace}}}:keylane:lease-token {last}"),
            )
            .await;
            let tokens = granted(&*store, ["a".to_owned(), "b".to_owned()]).await;
            assert_eq!(tokens, [Token(last + 1), Token(last + 2)], "{kind}");
            let tokens = granted(&*store, ["c".to_owned()]).await;
            assert_eq!(tokens, [Token(last + 3)], "{kind}");
            let owner = Owner::random();
            let wishes = [Wish::new("d", TTL)];
            let answers = store.acquire(&owner, &wishes).await;
            let Ok([Answer::Granted(token)]) = answers.as_deref() else {
                // There is no token above the highest, and the error says so.
                assert_eq!(last, u64::MAX - 3, "{kind}");
                continue;
            };
            let claims = [Claim::new("d", *token, TTL)];
            assert_eq!(store.renew(&owner, &claims).await, Ok(vec![true]));
            store.release(&owner, &claims).await.unwrap();
            assert_eq!(store.renew(&owner, &claims).await, Ok(vec![false]));
        }
    }
}
