//! What many candidates cost the server.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Error;
use crate::changes::election;
use crate::curator::Curator;
use crate::process::Process;
use crate::server::Server;
use crate::side::Side;

/// How long all stand still before they are measured.
const SETTLED: Duration = Duration::from_secs(2);

/// How long after a change all that follows from it is over.
const AFTER: Duration = Duration::from_millis(300);

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// How many candidates wait for the one that leads, in one process.
    pub waiting: usize,
    /// How long they are watched at rest.
    pub rest: Duration,
    /// How often the leader changes.
    pub changes: usize,
}

/// What the server has to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Packets a second at rest.
    pub rest: f64,
    /// Transactions a second at rest.
    pub rest_writes: f64,
    /// Packets of a change, without those at rest.
    pub change: f64,
    /// Transactions of a change, without those at rest.
    pub change_writes: f64,
    /// Watchers that fire for a change, without those at rest.
    pub fired: f64,
}

/// Measures one side, whose candidates are in one process.
pub async fn measure(
    side: Side,
    curator: &Curator,
    server: &Server,
    extent: Extent,
) -> Result<Load, Error> {
    let candidates = extent.waiting + 1;
    let command = side.command(curator, server, &election(side, "load"), "p", candidates)?;
    let mut process = Process::start(command)?;
    process.leads().await?;
    let nodes = side.nodes(1, candidates);
    server.has(nodes).await?;
    sleep(SETTLED).await;

    let (began, before) = (Instant::now(), server.counters().await?);
    sleep(extent.rest).await;
    let at_rest = server.counters().await?.since(before);
    let rest_seconds = began.elapsed().as_secs_f64();
    let rest = at_rest.received / rest_seconds;
    let rest_writes = at_rest.writes / rest_seconds;
    let rest_fired = at_rest.fired / rest_seconds;

    let (began, before) = (Instant::now(), server.counters().await?);
    for _ in 0..extent.changes {
        process.resign().await?;
        process.leads().await?;
        sleep(AFTER).await;
    }
    let changed = server.counters().await?.since(before);
    let seconds = began.elapsed().as_secs_f64();
    let of_one = |all: f64, rest: f64| (all - rest * seconds) / extent.changes as f64;
    server.has(nodes).await?;
    process.close().await?;
    server.has(0).await?;
    Ok(Load {
        rest,
        rest_writes,
        change: of_one(changed.received, rest),
        change_writes: of_one(changed.writes, rest_writes),
        fired: of_one(changed.fired, rest_fired),
    })
}
