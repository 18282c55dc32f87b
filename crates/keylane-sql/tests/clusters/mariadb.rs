//! MariaDB: a primary and a semi-synchronous standby.

use std::mem::swap;

use testkit_processes::Verdict;
use testkit_servers::MariaDb;
use testkit_servers::proxy::Proxy;
use tokio::time::sleep;

use crate::site::{FOUND_OUT, failovers, local, prepared, show_log};
use crate::worker::trial;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `cargo xtask soak --clusters`"]
async fn a_semi_synchronous_standby_takes_over() {
    let verdict = tried(failovers()).await;
    println!("measured: MariaDB, semi-synchronous standby: {verdict}");
    verdict.assert_nothing_lost();
}

/// Primaries are killed and vanish in turn.
async fn tried(failovers: u64) -> Verdict {
    show_log();
    let mut primary = MariaDb::start_primary().await.unwrap();
    let mut standby = primary.standby().await.unwrap();
    let proxy = Proxy::to(local(primary.port())).await.unwrap();
    let address = primary.create_database().await.unwrap();
    let mut trial = trial(&prepared(&address, &proxy).await).await;
    primary.synchronous(&standby).await.unwrap();
    trial.goes_on().await;
    for number in 0..failovers as usize {
        trial.fault();
        let is_killed = number.is_multiple_of(2);
        if is_killed {
            primary.kill().await.unwrap();
        } else {
            primary.pause().await.unwrap();
            trial.kill_worker(number);
            sleep(FOUND_OUT).await;
        }
        standby.promote().await.unwrap();
        swap(&mut primary, &mut standby);
        proxy.point_to(local(primary.port()));
        if is_killed {
            proxy.reset();
        }
        trial.goes_on().await;
        if !is_killed {
            // The former primary comes back, for those that still have connections to it.
            standby.resume().await.unwrap();
            sleep(FOUND_OUT).await;
        }
        trial.kill_worker(number + 1);
        if number + 1 < failovers as usize {
            standby.kill().await.unwrap();
            standby.rejoin(primary.port()).await.unwrap();
            primary.synchronous(&standby).await.unwrap();
        }
    }
    trial.end().await
}
