//! Servers that crash, hang, or cannot do it now.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keylane_leases::error::{AcquireError, LeaseLost};
use keylane_leases::{Lease, Leases, Token};
use testkit_servers::{Fsync, Redis, RedisKind};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::support::{ByProxy, answered, each_kind, execute, leases, own};

const LONG: Duration = Duration::from_secs(600);

fn is_taken(answer: &Result<Lease, AcquireError>) -> bool {
    matches!(answer, Err(AcquireError::Taken { .. }))
}

/// The server is killed and restarted while a key is held; the lease lasts longer than that.
#[tokio::test]
async fn a_crash_keeps_leases_and_tokens() {
    for kind in RedisKind::ALL {
        let server = own(kind).await;
        let (here, there) = (
            leases(&server.url(), "leases"),
            leases(&server.url(), "leases"),
        );
        let held = here.acquire("held", LONG).await.unwrap();
        let mut last = None;
        for _ in 0..3 {
            let lease = answered(|| there.acquire("other", LONG)).await.unwrap();
            assert!(Some(lease.token()) > last, "{lease:?} after {last:?}");
            last = Some(lease.token());
            lease.release().await;
            server.kill().await.unwrap();
            let refused = there.try_acquire("other", LONG).await;
            assert!(
                matches!(refused, Err(AcquireError::Store(_))),
                "{refused:?}"
            );
            server.start_again().await.unwrap();
            held.check().unwrap();
            let taken = answered(|| there.try_acquire("held", LONG)).await;
            assert!(is_taken(&taken), "{taken:?}");
        }
    }
}

/// With `appendfsync everysec` a crash of the machine loses the end of the file. A second holder is
/// possible, and its token is higher. The first one learns of it at its next renewal.
#[tokio::test]
async fn a_crash_that_loses_grants_loses_no_order_of_tokens() {
    each_kind(async |kind| {
        let builder = Redis::builder(kind).appendfsync(Fsync::EverySecond);
        let server = builder.start().await.unwrap();
        // The server is there again long before the renewal.
        let ttl = Duration::from_secs(30);
        let (here, there) = (
            leases(&server.url(), "leases"),
            leases(&server.url(), "leases"),
        );
        let kept = here.acquire("kept", LONG).await.unwrap();
        let log = AppendOnly::of(&server);
        let length = log.length_with("lease:kept").await;
        let lost = here.acquire("lost", ttl).await.unwrap();
        server.kill().await.unwrap();
        // The grant may not even be in the file: the server writes later while it syncs.
        log.cut(length);
        server.start_again().await.unwrap();

        let taken = answered(|| there.try_acquire("kept", LONG)).await;
        assert!(is_taken(&taken), "{kind}: {taken:?}");
        let second = answered(|| there.try_acquire("lost", ttl)).await.unwrap();
        lost.check()
            .expect("it does not know yet: there are two holders");
        assert!(second.token() > lost.token(), "{kind}");
        let why = timeout(ttl, lost.lost()).await.expect("before it runs out");
        assert_eq!(why, LeaseLost::TakenOver, "{kind}");
        second.check().unwrap();
        kept.check().unwrap();
    })
    .await;
}

/// The append-only file of the server.
struct AppendOnly(PathBuf);

impl AppendOnly {
    fn of(server: &Redis) -> Self {
        let mut folders = vec![server.folder().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.to_string_lossy().ends_with(".incr.aof") {
                    return Self(path);
                }
            }
        }
        panic!("{}: there is no append-only file", server.kind());
    }

    /// Waits until the file contains these words. Returns its length.
    async fn length_with(&self, words: &str) -> u64 {
        let found = async {
            loop {
                let bytes = std::fs::read(&self.0).unwrap();
                if String::from_utf8_lossy(&bytes).contains(words) {
                    return bytes.len() as u64;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), found).await.unwrap()
    }

    /// Cuts the file off, as if its end had never reached the disk.
    fn cut(&self, length: u64) {
        let file = std::fs::OpenOptions::new().write(true).open(&self.0);
        file.unwrap().set_len(length).unwrap();
    }
}

/// The holder gives up before the lease has run out at the server, whenever that goes on.
#[tokio::test]
async fn a_server_that_hangs_past_the_lease_comes_second() {
    each_kind(async |kind| {
        let place = ByProxy::start(kind).await;
        let ttl = Duration::from_secs(1);
        let lease = place.there.acquire("key", ttl).await.unwrap();
        sleep(ttl).await;
        let began = Instant::now();
        place.server.pause().await.unwrap();
        tokio::select! {
            biased;
            lost = lease.lost() => assert_eq!(lost, LeaseLost::RanOut, "{kind}"),
            () = sleep_until(began + ttl) => panic!("{kind}: the server gives it to another one"),
        }
        place.server.resume().await.unwrap();
        let next = answered(|| place.here.acquire("key", ttl)).await.unwrap();
        assert!(next.token() > lease.token());
    })
    .await;
}

/// Each of these faults ends, and then everything goes on.
#[tokio::test]
async fn a_server_that_cannot_do_it_now_is_asked_again() {
    for kind in RedisKind::ALL {
        let builder = Redis::builder(kind).argument("busy-reply-threshold", "50");
        let server = Arc::new(builder.start().await.unwrap());
        let leases = leases(&server.url(), "leases");
        let held = leases.acquire("held", LONG).await.unwrap();
        let mut last = held.token();

        let busy = {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.execute(&["EVAL", "while true do end", "0"]).await })
        };
        refused(&leases, "busy").await;
        execute(&server, "SCRIPT KILL").await;
        assert!(busy.await.unwrap().is_err());
        last = goes_on(&leases, last).await;

        for (begin, end, word) in [
            ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "oom"),
            ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "readonly"),
            (
                "CONFIG SET min-replicas-to-write 1",
                "CONFIG SET min-replicas-to-write 0",
                "noreplicas",
            ),
        ] {
            execute(&server, begin).await;
            refused(&leases, word).await;
            execute(&server, end).await;
            last = goes_on(&leases, last).await;
        }
        held.check().unwrap();
    }
}

/// A store that cannot do it returns the reason.
async fn refused(leases: &Leases, word: &str) {
    let refused = async {
        loop {
            match leases.try_acquire("other", LONG).await {
                Err(AcquireError::Store(error))
                    if error.to_string().to_lowercase().contains(word) =>
                {
                    return;
                }
                // The server has not noticed yet.
                Ok(lease) => lease.release().await,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let refused = timeout(Duration::from_secs(20), refused).await;
    assert!(refused.is_ok(), "no answer says {word}");
}

async fn goes_on(leases: &Leases, last: Token) -> Token {
    let lease = answered(|| leases.acquire("other", LONG)).await.unwrap();
    assert!(lease.token() > last);
    let token = lease.token();
    lease.release().await;
    token
}

/// Neither needs memory, so both still work when there is none left.
#[tokio::test]
async fn without_memory_leases_are_still_renewed_and_released() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let (here, there) = (
            leases(&server.url(), "leases"),
            leases(&server.url(), "leases"),
        );
        let ttl = Duration::from_secs(6);
        let held = here.acquire("held", ttl).await.unwrap();
        let other = here.acquire("other", LONG).await.unwrap();
        execute(&server, "CONFIG SET maxmemory 1").await;
        sleep(ttl * 2).await;
        held.check().unwrap();
        other.release().await;
        execute(&server, "CONFIG SET maxmemory 0").await;
        let _ = there.try_acquire("other", LONG).await.unwrap();
    })
    .await;
}
