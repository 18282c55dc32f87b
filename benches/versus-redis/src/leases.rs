//! Leases that are held, and renewed in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use keylane_leases::{Lease, Leases};
use keylane_redis::{Redis, RedisLeases};

use crate::Error;
use crate::measure::Sample;
use crate::server::Server;
use crate::usage::Watch;

/// How long a lease lasts that is not renewed. One of this time is renewed after each half of it.
pub const TTL: Duration = Duration::from_secs(30);

/// How many are asked for at the same time.
const AT_ONCE: usize = 1_000;

/// Holds so many leases for so many halves of their time. What is lost counts as a break.
pub async fn measure(server: &Server, count: usize, periods: u32) -> Result<Sample, Error> {
    server.clear().await?;
    let store = RedisLeases::open(&Redis::at(&server.url())?, "versus")?;
    let leases = Leases::open(Arc::new(store))?;
    let mut held: Vec<Lease> = Vec::with_capacity(count);
    while held.len() < count {
        let next = held.len()..count.min(held.len() + AT_ONCE);
        let asked = next.map(|number| leases.acquire(format!("account-{number:010}"), TTL));
        held.extend(try_join_all(asked).await?);
    }
    server.settle().await?;

    let watch = Watch::new(server.pid()?);
    let began = Instant::now();
    tokio::time::sleep(TTL / 2 * periods).await;
    let seconds = began.elapsed().as_secs_f64();
    let (cpu_seconds, server_seconds) = watch.read();
    let lost = held.iter().filter(|lease| lease.check().is_err()).count();
    let commands = server.commands().await?;
    leases.close().await;
    Ok(Sample {
        messages: count as u64,
        seconds,
        cpu_seconds,
        server_seconds,
        is_cut: false,
        breaks: lost as u64,
        commands,
    })
}
