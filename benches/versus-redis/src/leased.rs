//! What a message costs in a dispatcher whose lanes are leased, once its key is held.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylane::Dispatcher;
use keylane_leases::Leases;
use keylane_redis::{Redis, RedisLeases};

use crate::Error;
use crate::contenders::{CONCURRENCY, Id};
use crate::measure::Sample;
use crate::message::{Message, Traffic};
use crate::server::Server;
use crate::usage::Watch;
use crate::work::Work;

/// How long a lease lasts that is not renewed.
const TTL: Duration = Duration::from_secs(30);

/// Longer than a measurement: keys that have nothing to do for a while keep their leases.
const LINGER: Duration = Duration::from_secs(60);

type Lanes = Dispatcher<u32, Message, (), Infallible>;

/// Measures a dispatcher that is sent messages, after one of each key.
pub async fn measure(server: &Server, id: Id, traffic: Traffic) -> Result<Sample, Error> {
    server.clear().await?;
    // The first one of each key has its lease acquired, and is not measured.
    let all = Traffic {
        messages: traffic.messages + traffic.keys,
        ..traffic
    };
    let work = Work::new(all, None);
    let leases = match id {
        Id::LanesLeased => {
            let store = RedisLeases::open(&Redis::at(&server.url())?, "versus")?;
            Some(Leases::open(Arc::new(store))?)
        }
        _ => None,
    };
    let lanes = lanes(&work, leases.as_ref())?;
    for message in all.slice(0..all.keys) {
        lanes.send(message).await?;
    }
    while work.ended() < all.keys {
        tokio::task::yield_now().await;
    }
    server.settle().await?;
    let messages = all.slice(all.keys..all.messages);

    let watch = Watch::new(server.pid()?);
    let began = Instant::now();
    for message in messages {
        lanes.send(message).await?;
    }
    work.done().await;
    let seconds = began.elapsed().as_secs_f64();
    let (cpu_seconds, server_seconds) = watch.read();
    let commands = server.commands().await?;
    lanes.drain().await;
    if let Some(leases) = leases {
        leases.close().await;
    }
    Ok(Sample {
        messages: traffic.messages,
        seconds,
        cpu_seconds,
        server_seconds,
        is_cut: false,
        breaks: work.breaks(),
        commands,
    })
}

fn lanes(work: &Work, leases: Option<&Leases>) -> Result<Lanes, Error> {
    let work = work.clone();
    let mut lanes = Dispatcher::builder(|message: &Message| message.key).concurrency(CONCURRENCY);
    if let Some(leases) = leases {
        let leased = leases.lanes(TTL, |key: &u32| key.to_be_bytes())?;
        lanes = lanes.leased_by(leased.linger(LINGER));
    }
    let lanes = lanes.spawn(move |message: Message| {
        let work = work.clone();
        async move {
            work.handle(message).await;
            Ok::<(), Infallible>(())
        }
    })?;
    Ok(lanes)
}
