//! PostgreSQL: a primary, a synchronous standby, and one that lags behind.

use std::mem::swap;
use std::time::Duration;

use keylane_testkit::scenario::until_async as until;
use testkit_processes::Verdict;
use testkit_servers::Postgres;
use testkit_servers::proxy::{Direction, Proxy};
use tokio::time::sleep;

use crate::site::{FOUND_OUT, failovers, local, prepared, show_log};
use crate::worker::trial;

/// How far the asynchronous standby lags behind: 64 KiB at most are on their way.
const LAG: Duration = Duration::from_millis(20);

struct Site {
    primary: Postgres,
    /// A commit waits until it has it.
    synchronous: Postgres,
    asynchronous: Postgres,
    /// From the clients to the primary, and from the asynchronous standby to it.
    proxy: Proxy,
    lag: Proxy,
}

impl Site {
    async fn start() -> Self {
        let primary = Postgres::start_primary().await.unwrap();
        let proxy = Proxy::to(local(primary.port())).await.unwrap();
        let lag = Proxy::to(local(primary.port())).await.unwrap();
        let synchronous = primary.standby().await.unwrap();
        let asynchronous = Postgres::standby_of(lag.port()).await.unwrap();
        Self {
            primary,
            synchronous,
            asynchronous,
            proxy,
            lag,
        }
    }

    /// Both standbys follow from now on, each in its way.
    async fn is_whole(&self) {
        self.primary.synchronous(&self.synchronous).await.unwrap();
        until("the asynchronous standby has nearly all", async || {
            let behind = "select count(*) from pg_stat_replication
                where pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) < 65536";
            let count = self.primary.execute("postgres", behind).await;
            count.unwrap() == "2\n"
        })
        .await;
        self.lag.delay(Direction::ToClient, LAG);
    }

    /// Lets the clients go to the primary.
    fn forward(&self) {
        let primary = local(self.primary.port());
        self.proxy.point_to(primary);
        self.lag.delay(Direction::ToClient, Duration::ZERO);
        self.lag.point_to(primary);
        self.lag.reset();
    }

    /// The primary is killed, and its connections are reset.
    async fn killed(&mut self) {
        self.primary.kill().await.unwrap();
        self.synchronous.promote().await.unwrap();
        swap(&mut self.primary, &mut self.synchronous);
        self.forward();
    }

    /// The primary vanishes: its connections stay open, and nothing comes over them.
    async fn vanished(&mut self) {
        self.primary.pause().await.unwrap();
        sleep(FOUND_OUT).await;
        self.synchronous.promote().await.unwrap();
        swap(&mut self.primary, &mut self.synchronous);
        self.forward();
    }

    /// Both that have all data are lost.
    async fn lost(&mut self) {
        self.lag.cut();
        self.primary.kill().await.unwrap();
        self.synchronous.kill().await.unwrap();
        self.asynchronous.promote().await.unwrap();
        swap(&mut self.primary, &mut self.asynchronous);
        self.lag.heal();
        self.forward();
    }

    /// The former primary and the standbys follow the new primary.
    async fn repaired(&self) {
        let (direct, lag) = (self.primary.port(), self.lag.port());
        let rejoins = async |standby: &Postgres, port| {
            standby.kill().await.unwrap();
            standby.rejoin(port).await.unwrap();
        };
        tokio::join!(
            rejoins(&self.synchronous, direct),
            rejoins(&self.asynchronous, lag)
        );
        self.is_whole().await;
    }
}

async fn tried(kinds: &[Loss], failovers: u64) -> Verdict {
    show_log();
    let mut site = Site::start().await;
    let address = site.primary.create_database().await.unwrap();
    let mut trial = trial(&prepared(&address, &site.proxy).await).await;
    site.is_whole().await;
    trial.goes_on().await;
    for (number, kind) in (0..failovers as usize).zip(kinds.iter().cycle()) {
        match kind {
            Loss::Killed => {
                trial.fault();
                site.killed().await;
            }
            Loss::Vanished => {
                trial.fault();
                // A worker also dies before the standby takes over.
                trial.kill_worker(number + 1);
                site.vanished().await;
            }
            Loss::Site => {
                trial.lossy_fault();
                site.lost().await;
            }
        }
        trial.goes_on().await;
        if let Loss::Vanished = kind {
            // The former primary comes back, for those that still have connections to it.
            site.synchronous.resume().await.unwrap();
            sleep(FOUND_OUT).await;
        }
        trial.kill_worker(number);
        if number + 1 < failovers as usize {
            site.repaired().await;
        }
    }
    trial.end().await
}

/// What is lost.
#[derive(Clone, Copy)]
enum Loss {
    Killed,
    Vanished,
    Site,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_takes_over() {
    let verdict = tried(&[Loss::Killed, Loss::Vanished], failovers()).await;
    println!("measured: PostgreSQL, synchronous standby: {verdict}");
    verdict.assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `cargo xtask soak --clusters`"]
async fn an_asynchronous_standby_takes_over() {
    let verdict = tried(&[Loss::Site], failovers().div_ceil(2)).await;
    println!("measured: PostgreSQL, standby {LAG:?} behind: {verdict}");
    verdict.assert_in_order();
}
