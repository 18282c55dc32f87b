//! What a message costs in a dispatcher whose lanes are leased, once its key is held.
//!
//! The seam: a dispatcher has no leased lanes yet. [`lanes`] is to call `.leased_by(leases)` where it
//! is asked for them; then [`IS_THERE`].

use std::convert::Infallible;
use std::time::Instant;

use keylane::Dispatcher;

use crate::Error;
use crate::contenders::{CONCURRENCY, Id};
use crate::measure::Sample;
use crate::message::{Message, Traffic};
use crate::server::Server;
use crate::usage::Watch;
use crate::work::Work;

/// Whether leased lanes can be measured yet.
pub const IS_THERE: bool = false;

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
    let lanes = lanes(&work, id == Id::LanesLeased)?;
    for message in all.slice(0..all.keys) {
        lanes.send(message).await?;
    }
    while work.ended() < all.keys {
        tokio::task::yield_now().await;
    }
    server.settle().await?;

    let watch = Watch::new(server.pid()?);
    let began = Instant::now();
    for message in all.slice(all.keys..all.messages) {
        lanes.send(message).await?;
    }
    work.done().await;
    let seconds = began.elapsed().as_secs_f64();
    let (cpu_seconds, server_seconds) = watch.read();
    let commands = server.commands().await?;
    lanes.drain().await;
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

fn lanes(work: &Work, is_leased: bool) -> Result<Lanes, Error> {
    if is_leased {
        return Err("a dispatcher has no leased lanes yet".into());
    }
    let work = work.clone();
    let lanes = Dispatcher::builder(|message: &Message| message.key)
        .concurrency(CONCURRENCY)
        .spawn(move |message: Message| {
            let work = work.clone();
            async move {
                work.handle(message).await;
                Ok::<(), Infallible>(())
            }
        })?;
    Ok(lanes)
}
