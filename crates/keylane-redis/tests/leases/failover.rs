//! A replica that is promoted before it has received a grant.

use std::collections::HashMap;
use std::time::Duration;

use keylane_leases::error::LeaseLost;
use keylane_leases::{Lease, Token};
use keylane_testkit::{Evidence, History, Rule};
use testkit_servers::{Redis, RedisKind};
use tokio::time::{sleep, timeout};

use crate::support::{answered, execute, leases, proxy};

const TTL: Duration = Duration::from_secs(6);

/// The target of the holders' writes: a value for each key. A fenced one refuses a token below the
/// highest it has seen.
struct Sink {
    is_fenced: bool,
    written: HashMap<u64, (Token, &'static str)>,
    history: History,
}

impl Sink {
    fn new(is_fenced: bool) -> Self {
        Self {
            is_fenced,
            written: HashMap::new(),
            history: History::new(),
        }
    }

    fn write(&mut self, key: u64, token: Token, value: &'static str) {
        let highest = self.written.get(&key).map(|(token, _)| *token);
        let is_accepted = !self.is_fenced || Some(token) >= highest;
        self.history.sink_write(key, token.0, is_accepted);
        if is_accepted {
            self.written.insert(key, (token, value));
        }
    }
}

#[tokio::test]
async fn a_failover_that_loses_a_grant_is_harmless_to_a_fenced_sink() {
    for kind in RedisKind::ALL {
        let (mut plain, mut fenced) = (Sink::new(false), Sink::new(true));
        two_holders(kind, &mut [&mut plain, &mut fenced]).await;

        // Without fencing the write of the older holder has replaced that of the newer one.
        assert_eq!(plain.written[&0].1, "older", "{kind}");
        let violations = plain.history.check(&Evidence::new()).unwrap_err();
        assert!(
            violations.iter().all(|one| one.rule == Rule::Fencing),
            "{violations:?}"
        );

        assert_eq!(fenced.written[&0].1, "newer", "{kind}");
        let verdict = fenced.history.check(&Evidence::new()).unwrap();
        verdict.assert_judged(&[Rule::Fencing]);
    }
}

/// Two holders of a key at once, who write in turn, the older one last.
async fn two_holders(kind: RedisKind, sinks: &mut [&mut Sink; 2]) {
    let primary = Redis::start(kind).await.unwrap();
    let cable = proxy(primary.port()).await;
    let replica = Redis::start(kind).await.unwrap();
    execute(&replica, &format!("REPLICAOF 127.0.0.1 {}", cable.port())).await;
    let (here, there) = (
        leases(&primary.url(), "leases"),
        leases(&replica.url(), "leases"),
    );
    let known = here
        .acquire("known", Duration::from_secs(60))
        .await
        .unwrap();
    while execute(&replica, "EXISTS {leases}:keylane:lease:known").await != "1" {
        sleep(Duration::from_millis(10)).await;
    }

    // The primary is cut off from its replica, grants a key, and disappears.
    cable.cut();
    let older = here.acquire("key", TTL).await.unwrap();
    execute(&replica, "REPLICAOF NO ONE").await;
    let newer = answered(|| there.try_acquire("key", 10 * TTL))
        .await
        .unwrap();
    let taken = there.try_acquire("known", TTL).await;
    assert!(taken.is_err(), "{kind}: this grant has arrived");

    older.check().expect("two holders at once");
    newer.check().unwrap();
    assert!(newer.token() > older.token(), "{kind}");
    for (lease, value) in [(&older, "older"), (&newer, "newer"), (&older, "older")] {
        for sink in &mut *sinks {
            write(sink, lease, value);
        }
    }

    // The old primary learns of the new one. Its holder can renew no more, and gives up in time.
    execute(&primary, &format!("REPLICAOF 127.0.0.1 {}", replica.port())).await;
    let lost = timeout(TTL, older.lost()).await.unwrap();
    assert_eq!(lost, LeaseLost::RanOut, "{kind}");
    newer.check().unwrap();
    known.check().unwrap();
}

/// Writes as a holder that has checked its lease.
fn write(sink: &mut Sink, lease: &Lease, value: &'static str) {
    lease.check().unwrap();
    sink.write(0, lease.token(), value);
}
