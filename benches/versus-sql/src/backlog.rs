//! A long backlog: whether its end goes as fast as its beginning.

use std::time::Instant;

use serde::Serialize;
use testkit_servers::Postgres;

use crate::Error;
use crate::contenders::{self, Id, Setup};
use crate::measure::{Place, confirmed, stop};
use crate::message::Traffic;
use crate::work::Work;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Backlog {
    /// Messages that waited.
    pub messages: u64,
    /// On how many keys.
    pub keys: u64,
    /// How many were accepted per second.
    pub accepted: f64,
    /// Messages per second in each tenth.
    pub tenths: Vec<f64>,
    /// The last tenth to the first.
    pub ratio: f64,
    /// Messages out of their order.
    pub breaks: u64,
}

/// Measures keylane with one worker and handlers that do nothing.
pub async fn measure(server: &Postgres, messages: u64, keys: u64) -> Result<Backlog, Error> {
    let place = Place::new(server).await?;
    let traffic = Traffic {
        messages,
        keys: keys.min(messages),
    };
    let setup = Setup {
        workers: 1,
        keys: traffic.keys,
    };
    let mut queue = Id::Keylane.open(&place.address, setup).await?;
    let filling = Instant::now();
    contenders::fill(queue.as_ref(), traffic).await?;
    let accepted = messages as f64 / filling.elapsed().as_secs_f64();
    place.settle().await?;

    let work = Work::new(traffic, None);
    let mut last = Instant::now();
    queue.begin(&work).await?;
    confirmed(queue.as_ref(), &work, messages).await?;
    let mut tenths = Vec::new();
    for part in work.parts().into_iter().take(10) {
        tenths.push(messages as f64 / 10.0 / (part - last).as_secs_f64());
        last = part;
    }
    let ratio = match tenths[..] {
        [first, .., last] => last / first,
        _ => f64::NAN,
    };
    let breaks = work.breaks();
    stop(queue, place, server).await?;
    Ok(Backlog {
        messages,
        keys: traffic.keys,
        accepted,
        tenths,
        ratio,
        breaks,
    })
}
