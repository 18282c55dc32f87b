//! A test suite for implementations of [`LeaseStore`].
//!
//! # Examples
//!
//! ```
//! use std::sync::Arc;
//! use keylane_leases::{MemoryStore, conformance};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! conformance::check(Arc::new(MemoryStore::new())).await;
//! # }
//! ```

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, sleep};

use crate::error::AcquireError;
use crate::lease::Lease;
use crate::leases::Leases;
use crate::store::{Answer, Claim, Holder, LeaseStore, Owner, Token, Wish};

/// Longer than a case takes.
const LONG: Duration = Duration::from_secs(600);

/// How many leases of an owner are acquired at a time.
const AT_ONCE: usize = 100;

/// How often one that the store failed at is asked for again.
const TRIES: usize = 5;

/// A time that a case can wait for. On a machine that stands still it may pass between two calls.
const SHORT: Duration = Duration::from_millis(300);

/// Runs every case, each with keys of its own.
///
/// # Panics
///
/// Panics if the store breaks a rule. The case is printed before it starts.
pub async fn check(store: Arc<dyn LeaseStore>) {
    check_from(store, SHORT).await;
}

/// Runs every case against a store with long times to live: this is the shortest one that it keeps
/// to, and it notices an end within as long again. The cases wait for some 25 times as long.
///
/// # Panics
///
/// Panics as [`check`] does.
pub async fn check_from(store: Arc<dyn LeaseStore>, short: Duration) {
    for (name, case) in CASES {
        println!("case: {name}");
        let scene = Scene {
            store: &*store,
            case: name,
            here: Owner::random(),
            there: Owner::random(),
            short,
        };
        case(&scene).await;
    }
}

/// Checks that two owners of a store keep `each` leases for several times as long as one lasts, and
/// that the leases of one which has closed are free for the other. It takes some `3 * ttl`. Both
/// are closed then.
///
/// # Panics
///
/// Panics if a lease is not granted, or is lost. `ttl` must outlast what delays a renewal on the
/// machine that runs this.
pub async fn check_many(here: &Leases, there: &Leases, each: u32, ttl: Duration) {
    let keys = |of: &'static str| (0..each).map(move |number| format!("{of}/{number}"));
    // Not all at once: a client may limit how long a call waits for its turn.
    let ours = stream::iter(keys("here").map(|key| insist(here, key, ttl)));
    let theirs = stream::iter(keys("there").map(|key| insist(there, key, ttl)));
    let held = try_join(
        ours.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>(),
        theirs.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>(),
    );
    let (ours, theirs) = held.await.expect("each lease is free");
    for _ in 0..4 {
        sleep(ttl / 2).await;
        for lease in ours.iter().chain(&theirs) {
            lease.check().expect("it is renewed");
        }
    }
    let taken = there.try_acquire("here/7", ttl).await;
    assert!(taken.is_err(), "another owner has it: {taken:?}");
    here.close().await;
    let free = stream::iter(keys("here").map(|key| insist(there, key, ttl)));
    let free = free.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>();
    assert_eq!(free.await.expect("each is free").len(), each as usize);
    there.close().await;
}

/// Acquires a lease that is free. A store may fail now and then, and says so: two transactions of
/// a database may conflict.
async fn insist(leases: &Leases, key: String, ttl: Duration) -> Result<Lease, AcquireError> {
    for _ in 0..TRIES {
        match leases.try_acquire(key.clone(), ttl).await {
            Err(AcquireError::Store(_)) => {}
            answer => return answer,
        }
    }
    leases.try_acquire(key, ttl).await
}

/// A case, and two owners who meet in it.
struct Scene<'a> {
    store: &'a dyn LeaseStore,
    case: &'static str,
    here: Owner,
    there: Owner,
    short: Duration,
}

type Case = for<'a> fn(&'a Scene<'a>) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), |scene| Box::pin($name(scene)))),*]
    };
}

const CASES: &[(&str, Case)] = cases![
    one_holder,
    tokens_grow,
    the_owner_may_ask_again,
    asking_again_shortens_nothing,
    a_lease_runs_out,
    a_renewed_lease_lasts,
    leases_end_apart,
    a_token_of_another_grant_does_nothing,
    a_token_of_another_owner_does_nothing,
    a_holder_is_named,
    calls_of_nothing,
    answers_are_in_order,
    keys_are_exact,
    many_at_once,
    only_one_of_many_owners,
];

impl Scene<'_> {
    fn key(&self, name: &str) -> Bytes {
        // An earlier run has left other keys behind.
        Bytes::from(format!("{}/{}/{name}", self.here, self.case))
    }

    async fn acquire(&self, owner: &Owner, name: &str, ttl: Duration) -> Answer {
        let wishes = [Wish::new(self.key(name), ttl)];
        let answers = self.store.acquire(owner, &wishes).await.expect("answered");
        assert_eq!(answers.len(), 1);
        answers[0]
    }

    async fn granted(&self, owner: &Owner, name: &str, ttl: Duration) -> Claim {
        let token = granted(self.acquire(owner, name, ttl).await);
        Claim::new(self.key(name), token, ttl)
    }

    async fn renew(&self, owner: &Owner, claim: &Claim) -> bool {
        let claims = std::slice::from_ref(claim);
        let answers = self.store.renew(owner, claims).await.expect("answered");
        assert_eq!(answers.len(), 1);
        answers[0]
    }

    async fn release(&self, owner: &Owner, claim: &Claim) {
        let claims = std::slice::from_ref(claim);
        self.store.release(owner, claims).await.expect("answered");
    }

    async fn holder(&self, name: &str) -> Option<Holder> {
        let holder = self.store.held_by(&self.key(name)).await;
        holder.expect("answered")
    }

    /// Checks that the holder of a key is this owner, under this claim.
    async fn is_held_by(&self, owner: &Owner, name: &str, claim: &Claim) {
        let holder = self.holder(name).await.expect("it is held");
        is_named(&holder, owner, claim);
    }

    /// Returns the claim of a short lease that was renewed for a long time.
    async fn renewed(&self, owner: &Owner, name: &str) -> Claim {
        loop {
            let began = Instant::now();
            let mut claim = self.granted(owner, name, self.short).await;
            claim.ttl = LONG;
            if self.renew(owner, &claim).await {
                return claim;
            }
            assert!(began.elapsed() >= self.short, "it is held");
        }
    }
}

/// Checks that this holder is this owner, under this claim.
fn is_named(holder: &Holder, owner: &Owner, claim: &Claim) {
    assert_eq!(
        (&*holder.owner, holder.token),
        (owner.as_str(), claim.token)
    );
    let is_right = |time: Duration| !time.is_zero() && time <= claim.ttl;
    assert!(holder.remaining.is_none_or(is_right), "{holder:?}");
}

fn granted(answer: Answer) -> Token {
    match answer {
        Answer::Granted(token) => token,
        taken => panic!("{taken:?}"),
    }
}

fn is_taken(answer: Answer) -> bool {
    matches!(answer, Answer::Taken { .. })
}

async fn one_holder(scene: &Scene<'_>) {
    let claim = scene.granted(&scene.here, "key", LONG).await;
    let Answer::Taken { remaining } = scene.acquire(&scene.there, "key", LONG).await else {
        panic!("granted twice");
    };
    assert!(!remaining.is_zero() && remaining <= LONG, "{remaining:?}");
    let _ = scene.granted(&scene.there, "another key", LONG).await;
    scene.release(&scene.here, &claim).await;
    let _ = scene.granted(&scene.there, "key", LONG).await;
    assert!(is_taken(scene.acquire(&scene.here, "key", LONG).await));
}

async fn tokens_grow(scene: &Scene<'_>) {
    let mut last = None;
    for n in 0..10 {
        let owner = [&scene.here, &scene.there][n % 2];
        let claim = scene.granted(owner, "key", LONG).await;
        assert!(Some(claim.token) > last, "{:?} after {last:?}", claim.token);
        last = Some(claim.token);
        scene.release(owner, &claim).await;
    }
}

async fn the_owner_may_ask_again(scene: &Scene<'_>) {
    let first = scene.granted(&scene.here, "key", LONG).await;
    let second = scene.granted(&scene.here, "key", LONG).await;
    assert!(second.token > first.token);
    assert!(!scene.renew(&scene.here, &first).await);
    assert!(scene.renew(&scene.here, &second).await);
}

async fn asking_again_shortens_nothing(scene: &Scene<'_>) {
    let _ = scene.granted(&scene.here, "key", LONG).await;
    // An earlier call that was given up, and reaches the store late.
    let _ = scene.granted(&scene.here, "key", scene.short).await;
    tokio::time::sleep(scene.short * 2).await;
    assert!(is_taken(scene.acquire(&scene.there, "key", LONG).await));
}

async fn a_lease_runs_out(scene: &Scene<'_>) {
    let began = Instant::now();
    let first = scene.granted(&scene.here, "key", scene.short).await;
    match scene.acquire(&scene.there, "key", LONG).await {
        Answer::Taken { remaining } => assert!(remaining <= scene.short, "{remaining:?}"),
        Answer::Granted(_) => assert!(began.elapsed() >= scene.short, "it has not run out"),
    }
    tokio::time::sleep(scene.short * 2).await;
    let second = scene.granted(&scene.there, "key", LONG).await;
    assert!(second.token > first.token);
    assert!(!scene.renew(&scene.here, &first).await);
    scene.release(&scene.here, &first).await;
    assert!(is_taken(scene.acquire(&scene.here, "key", LONG).await));
}

async fn a_renewed_lease_lasts(scene: &Scene<'_>) {
    let mut claim = scene.renewed(&scene.here, "key").await;
    tokio::time::sleep(scene.short * 2).await;
    assert!(is_taken(scene.acquire(&scene.there, "key", LONG).await));
    claim.ttl = scene.short;
    assert!(
        scene.renew(&scene.here, &claim).await,
        "it may be shortened"
    );
    tokio::time::sleep(scene.short * 2).await;
    let _ = scene.granted(&scene.there, "key", LONG).await;
}

async fn leases_end_apart(scene: &Scene<'_>) {
    // Long enough for renewals on a busy machine.
    let ttl = (scene.short * 2).max(Duration::from_secs(2));
    let mut renewed_at = Instant::now();
    let mut stays = scene.granted(&scene.here, "stays", ttl).await;
    let _ = scene.granted(&scene.here, "ends", ttl).await;
    for _ in 0..9 {
        tokio::time::sleep(ttl / 3).await;
        let began = Instant::now();
        if !scene.renew(&scene.here, &stays).await {
            assert!(renewed_at.elapsed() >= ttl, "it is held");
            stays = scene.granted(&scene.here, "stays", ttl).await;
        }
        renewed_at = began;
    }
    // Although the same owner has renewed another lease.
    let _ = scene.granted(&scene.there, "ends", LONG).await;
    let stays = is_taken(scene.acquire(&scene.there, "stays", LONG).await);
    assert!(stays || renewed_at.elapsed() >= ttl, "it is held");
}

async fn a_token_of_another_grant_does_nothing(scene: &Scene<'_>) {
    let first = scene.granted(&scene.here, "key", LONG).await;
    scene.release(&scene.here, &first).await;
    let second = scene.granted(&scene.here, "key", LONG).await;
    let none = Claim::new(first.key.clone(), Token(second.token.0 + 1), LONG);
    for stale in [&first, &none] {
        assert!(!scene.renew(&scene.here, stale).await);
        scene.release(&scene.here, stale).await;
    }
    assert!(is_taken(scene.acquire(&scene.there, "key", LONG).await));
    assert!(scene.renew(&scene.here, &second).await);
}

async fn a_token_of_another_owner_does_nothing(scene: &Scene<'_>) {
    let claim = scene.granted(&scene.here, "key", LONG).await;
    assert!(!scene.renew(&scene.there, &claim).await);
    scene.release(&scene.there, &claim).await;
    assert!(is_taken(scene.acquire(&scene.there, "key", LONG).await));
    let unknown = Claim::new(scene.key("unknown"), claim.token, LONG);
    assert!(!scene.renew(&scene.here, &unknown).await);
    scene.release(&scene.here, &unknown).await;
}

async fn a_holder_is_named(scene: &Scene<'_>) {
    assert_eq!(scene.holder("key").await, None);
    let first = scene.granted(&scene.here, "key", LONG).await;
    let other = scene.granted(&scene.there, "another key", LONG).await;
    scene.is_held_by(&scene.here, "key", &first).await;
    scene.is_held_by(&scene.there, "another key", &other).await;
    assert!(
        scene.renew(&scene.here, &first).await,
        "a look ends nothing"
    );
    let again = scene.granted(&scene.here, "key", LONG).await;
    scene.is_held_by(&scene.here, "key", &again).await;
    scene.release(&scene.here, &again).await;
    assert_eq!(scene.holder("key").await, None);
    let began = Instant::now();
    let short = scene.granted(&scene.there, "key", scene.short).await;
    match scene.holder("key").await {
        Some(holder) => is_named(&holder, &scene.there, &short),
        None => assert!(began.elapsed() >= scene.short, "it is held"),
    }
    tokio::time::sleep(scene.short * 2).await;
    assert_eq!(scene.holder("key").await, None);
}

async fn calls_of_nothing(scene: &Scene<'_>) {
    let Scene { store, here, .. } = scene;
    assert_eq!(store.acquire(here, &[]).await, Ok(vec![]));
    assert_eq!(store.renew(here, &[]).await, Ok(vec![]));
    assert_eq!(store.release(here, &[]).await, Ok(()));
}

async fn answers_are_in_order(scene: &Scene<'_>) {
    let taken = ["b", "d", "e"];
    for name in taken {
        let _ = scene.granted(&scene.there, name, LONG).await;
    }
    let names = ["f", "b", "a", "e", "d", "c"];
    let wishes = names.map(|name| Wish::new(scene.key(name), LONG));
    let answers = scene.store.acquire(&scene.here, &wishes).await;
    let answers = answers.expect("answered");
    let are_taken = Vec::from_iter(answers.iter().map(|answer| is_taken(*answer)));
    assert_eq!(are_taken, names.map(|name| taken.contains(&name)));
    let token = |answer: &Answer| match answer {
        Answer::Granted(token) => *token,
        Answer::Taken { .. } => Token(0),
    };
    let claims = names.iter().zip(&answers);
    let claims = claims.map(|(name, answer)| Claim::new(scene.key(name), token(answer), LONG));
    let renewed = scene
        .store
        .renew(&scene.here, &Vec::from_iter(claims))
        .await;
    assert_eq!(renewed, Ok(are_taken.iter().map(|taken| !taken).collect()));
}

async fn keys_are_exact(scene: &Scene<'_>) {
    let long = |last| [vec![b'k'; (1 << 20) - 1], vec![last]].concat();
    let keys: [Vec<u8>; 13] = [
        vec![],
        vec![0],
        vec![0, 0],
        b" ".into(),
        b"a".into(),
        b"A".into(),
        b"a ".into(),
        "\u{e4}".into(),
        "a\u{308}".into(),
        vec![0xff, 0xfe],
        b"'; drop table leases; --".into(),
        long(b'1'),
        long(b'2'),
    ];
    let wishes = keys.map(|key| Wish::new(key, LONG));
    let answers = scene.store.acquire(&scene.here, &wishes).await;
    let tokens = answers.expect("answered").into_iter().map(granted);
    let claims = wishes.iter().zip(tokens);
    let claims =
        Vec::from_iter(claims.map(|(wish, token)| Claim::new(wish.key.clone(), token, LONG)));
    for claim in &claims {
        let wish = [Wish::new(claim.key.clone(), LONG)];
        let taken = scene.store.acquire(&scene.there, &wish).await;
        assert!(is_taken(taken.expect("answered")[0]));
        scene.release(&scene.here, claim).await;
        let answer = scene.store.acquire(&scene.there, &wish).await;
        let token = granted(answer.expect("answered")[0]);
        let claim = Claim::new(claim.key.clone(), token, LONG);
        scene.release(&scene.there, &claim).await;
    }
}

async fn many_at_once(scene: &Scene<'_>) {
    let wishes = (0..1_000).map(|n| Wish::new(scene.key(&n.to_string()), LONG));
    let wishes = Vec::from_iter(wishes);
    let answers = scene.store.acquire(&scene.here, &wishes).await;
    let tokens = answers.expect("answered").into_iter().map(granted);
    let claims = wishes.iter().zip(tokens);
    let claims =
        Vec::from_iter(claims.map(|(wish, token)| Claim::new(wish.key.clone(), token, LONG)));
    let renewed = scene.store.renew(&scene.here, &claims).await;
    assert_eq!(renewed, Ok(vec![true; 1_000]));
    assert_eq!(scene.store.release(&scene.here, &claims).await, Ok(()));
    let renewed = scene.store.renew(&scene.here, &claims).await;
    assert_eq!(renewed, Ok(vec![false; 1_000]));
}

async fn only_one_of_many_owners(scene: &Scene<'_>) {
    let owners = Vec::from_iter((0..8).map(|_| Owner::random()));
    let names = Vec::from_iter((0..20).map(|n| n.to_string()));
    let rounds = owners.iter().enumerate().map(|(turn, owner)| {
        // Each turn starts at another key: stores that lock one key after the other must not
        // deadlock.
        let (before, after) = names.split_at(turn * 2);
        let wishes = after.iter().chain(before);
        let wishes = Vec::from_iter(wishes.map(|name| Wish::new(scene.key(name), LONG)));
        async move {
            let answers = scene.store.acquire(owner, &wishes).await.expect("answered");
            let keys = wishes.into_iter().map(|wish| wish.key);
            Vec::from_iter(keys.zip(answers))
        }
    });
    let mut grants: HashMap<Bytes, usize> = HashMap::new();
    for (key, answer) in futures::future::join_all(rounds)
        .await
        .into_iter()
        .flatten()
    {
        *grants.entry(key).or_default() += usize::from(!is_taken(answer));
    }
    assert!(grants.len() == names.len() && grants.values().all(|count| *count == 1));
}
