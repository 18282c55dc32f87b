//! The task of one stream that this process owns, from its lease to its end.

use std::future::pending;
use std::sync::Arc;

use keylane_leases::Lease;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::answer::Failure;
use super::builder::StreamTrim;
use super::flow::Flow;
use super::reader::{Ended, Reader};
use super::teller::{PAUSE, Teller, tell};
use super::tenure::{Place, TakenOver, Tenure};
use super::worker::{Gained, News, Order, Task, Worker};

/// Owns a stream until its lease is lost, or the source gives it up.
pub(super) async fn own(worker: Arc<Worker>, place: Arc<Place>, lease: Arc<Lease>) {
    let settings = &worker.config.settings;
    let tenure = Tenure::new(
        Arc::clone(&place),
        &settings.name,
        lease.token(),
        worker.acked,
        worker.link.clone(),
    );
    if !take_over(&worker, &tenure, &lease).await {
        return release(lease).await;
    }
    let flow = Arc::new(Flow::new(settings.read_ahead));
    let teller = Arc::new(Teller::new(worker.counters.clone()));
    let telling = tell(Arc::clone(&worker), tenure.clone(), Arc::clone(&teller));
    let (orders, mut ordered) = mpsc::unbounded_channel();
    worker.say(News::Gained(Box::new(Gained {
        tenure: tenure.clone(),
        lease: Arc::clone(&lease),
        flow: Arc::clone(&flow),
        teller,
        telling: Task(tokio::spawn(telling)),
        orders,
    })));

    let (mut round, mut is_lost) = (Some(0), false);
    // Ends when the source has no more use for the stream: also after it was lost, so that no task here
    // owns it again before the source knows.
    let reply = loop {
        let reading = async {
            match round {
                None => pending().await,
                Some(round) => {
                    let reader = Reader {
                        worker: &worker,
                        tenure: &tenure,
                        flow: &flow,
                        round,
                    };
                    tokio::select! {
                        ended = reader.run() => ended,
                        ended = trim(&worker, &tenure) => ended,
                    }
                }
            }
        };
        tokio::select! {
            biased;
            order = ordered.recv() => match order {
                None => break None,
                Some(Order::Rest) => round = None,
                Some(Order::Begin(next)) => round = Some(next),
                Some(Order::Leave(reply)) => break Some(reply),
            },
            why = lease.lost(), if !is_lost => {
                tracing::warn!(target: "keylane", stream = %name(&place), %why, "a stream is lost");
                worker.say(News::Lost(tenure.id()));
                (round, is_lost) = (None, true);
            }
            ended = reading => {
                round = None;
                match ended {
                    Ended::Refused => worker.say(News::Lost(tenure.id())),
                    Ended::NoGroup => {
                        tracing::warn!(
                            target: "keylane",
                            stream = %name(&place),
                            "the stream or its group has gone, and is made again"
                        );
                        worker.say(News::Lost(tenure.id()));
                    }
                    Ended::Failed(error) => worker.say(News::Failed(error)),
                }
            }
        }
    };
    if reply.is_some()
        && let Err(Failure::Failed(error)) = tenure.leave().await
    {
        tracing::debug!(target: "keylane", %error, "a consumer stays in its group");
    }
    release(lease).await;
    if let Some(reply) = reply {
        let _ = reply.send(());
    }
}

/// Gives the lease back, unless the source has it too: then it keeps it.
async fn release(lease: Arc<Lease>) {
    if let Some(lease) = Arc::into_inner(lease) {
        lease.release().await;
    }
}

/// Whether the stream is ours.
async fn take_over(worker: &Worker, tenure: &Tenure, lease: &Lease) -> bool {
    let place = &tenure.place;
    let take = async {
        loop {
            let resume = worker.resumes.get(place.number);
            match tenure.take(worker.config.settings.start_at, resume).await {
                Ok(TakenOver::Well) => return true,
                Ok(TakenOver::Made) => {
                    tracing::info!(target: "keylane", stream = %name(place), "a group was made");
                    return true;
                }
                Ok(TakenOver::Refused(token)) => {
                    tracing::warn!(
                        target: "keylane",
                        stream = %name(place),
                        higher = %String::from_utf8_lossy(&token),
                        "a stream was taken over under a higher token: do all members have the same \
                         leases?"
                    );
                    return false;
                }
                Err(Failure::Failed(error)) => {
                    worker.say(News::Failed(error));
                    return false;
                }
                Err(Failure::Unable(error)) => {
                    tracing::warn!(target: "keylane", %error, "a stream cannot be taken over now");
                }
                Err(Failure::NoGroup) => {}
            }
            sleep(PAUSE).await;
        }
    };
    tokio::select! {
        biased;
        _ = lease.lost() => false,
        is_ours = take => is_ours,
    }
}

/// Cuts off what has settled, every so often.
async fn trim(worker: &Worker, tenure: &Tenure) -> Ended {
    let settings = &worker.config.settings;
    if settings.trim == StreamTrim::Never {
        return pending().await;
    }
    let mut ticks = interval(settings.trim_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        match tenure.trim().await {
            Ok(Ok(cut)) => worker.counters.add(|counts| counts.trimmed += cut),
            Ok(Err(_)) => return Ended::Refused,
            Err(Failure::NoGroup | Failure::Unable(_)) => {}
            Err(Failure::Failed(error)) => return Ended::Failed(error),
        }
    }
}

fn name(place: &Place) -> String {
    String::from_utf8_lossy(&place.stream).into_owned()
}
