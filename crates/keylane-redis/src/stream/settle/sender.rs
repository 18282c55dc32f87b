//! Sends the acks and attempts of one stream to the server.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::super::answer::Failure;
use super::super::lease::{Refused, StreamLease};
use super::super::worker::{AGAIN_FOR, Duty, News, PAUSE, Worker};
use super::outbox::StreamOutbox;

/// Sends changes to the server until there is another owner, or the connection breaks.
pub(crate) async fn tell(worker: Arc<Worker>, tenure: StreamLease, teller: Arc<StreamOutbox>) {
    loop {
        let said = teller.take();
        if said.acks.is_empty() && said.notes.is_empty() {
            teller.wake.notified().await;
            continue;
        }
        let notes = said.notes.iter();
        let notes = notes.map(|(position, attempts)| (position.id, *attempts));
        let since = Instant::now();
        let refused = loop {
            match tenure.tell(&said.acks, notes.clone()).await {
                Ok(Ok(())) => break false,
                Ok(Err(Refused)) => break true,
                // The other streams, which may be on a node that is well, do not wait for this.
                Err(Failure::Lasting(error)) => {
                    worker.fails(&tenure.place, Duty::Own, error.to_string());
                    break true;
                }
                Err(Failure::Unable(error)) => {
                    worker.fails(&tenure.place, Duty::Own, error.to_string());
                    if worker.config.redis.is_cluster() && Instant::now() >= since + AGAIN_FOR {
                        break true;
                    }
                    sleep(PAUSE).await;
                }
                Err(Failure::Failed(error)) => {
                    teller.fail();
                    return worker.say(News::Failed(error));
                }
            }
        };
        if refused {
            teller.refuse();
            return worker.say(News::Lost(tenure.id()));
        }
        worker.works(&tenure.place, Duty::Own);
        // An attempt that is about to start is not among these: it has not settled.
        worker
            .starts
            .told(tenure.place.number, said.acks.iter().copied());
        worker.starts.note(&said.notes);
        teller.was_told(&said);
    }
}
