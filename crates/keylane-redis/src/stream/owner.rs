//! The task of one stream that this process owns, from its lease to its end.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use keylane_leases::Lease;
use redis::cmd;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::config::StreamTrim;
use super::core::Flow;
use super::figures::show_lag;
use super::lag::LastLag;
use super::lease::{Place, StreamLease, TakenOver};
use super::reader::{Ended, Reader};
use super::settle::StreamOutbox;
use super::settle::tell;
use super::worker::{Duty, Gained, LONG_PAUSE, News, Order, Task, Worker};

/// Owns a stream until its lease is lost, or the source gives it up. `let_go` gives up a stream
/// that the source does not know yet, because it cannot be taken over.
pub(super) async fn own(
    worker: Arc<Worker>,
    place: Arc<Place>,
    lease: Arc<Lease>,
    let_go: Arc<Notify>,
) {
    // Messages that the source has released may still be handled here. So the lease stays, and the
    // stream is taken over once more under it.
    let reply = loop {
        if let End::Over(reply) = own_once(&worker, &place, &lease, &let_go).await {
            break reply;
        }
    };
    // If the source has a handle too, it keeps the lease.
    if let Some(lease) = Arc::into_inner(lease) {
        lease.release().await;
    }
    if let Some(reply) = reply {
        let _ = reply.send(());
    }
    for duty in [Duty::Own, Duty::Wait, Duty::Trim] {
        worker.works(&place, duty);
    }
}

/// The end of one lease of a stream.
enum End {
    /// The source has released it, and this process still owns it.
    Again,
    /// It is not owned any more. If the source waits for that, the answer comes when the lease is
    /// free.
    Over(Option<oneshot::Sender<()>>),
}

async fn own_once(
    worker: &Arc<Worker>,
    place: &Arc<Place>,
    lease: &Arc<Lease>,
    let_go: &Notify,
) -> End {
    let settings = &worker.config.settings;
    let mut tenure = StreamLease::new(
        Arc::clone(place),
        &settings.name,
        lease.token(),
        worker.acked,
        worker.link.clone(),
    );
    if !take_over(worker, &mut tenure, lease, let_go).await {
        return End::Over(None);
    }
    let flow = Arc::new(Flow::new(settings.read_ahead, tenure.known.seen.clone()));
    let teller = Arc::new(StreamOutbox::new(worker.counters.clone()));
    let telling = tell(Arc::clone(worker), tenure.clone(), Arc::clone(&teller));
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let lag = LastLag::default();
    worker.say(News::Gained(Box::new(Gained {
        tenure: tenure.clone(),
        lease: Arc::clone(lease),
        flow: Arc::clone(&flow),
        teller,
        telling: Task(tokio::spawn(telling)),
        orders,
        lag: lag.clone(),
    })));

    let (began, _showing) = (Instant::now(), show_lag(worker, &tenure, &lag));
    let (mut round, mut is_lost) = (Some(0), false);
    // Ends when the source has released the stream, also after a loss, so that no task here owns it
    // again before the source knows.
    let reply = loop {
        let reading = async {
            match round {
                None => pending().await,
                Some(round) => {
                    let reader = Reader {
                        worker,
                        tenure: &tenure,
                        flow: &flow,
                        round,
                    };
                    tokio::select! {
                        ended = reader.run() => ended,
                        ended = trim(worker, &tenure) => ended,
                        ended = watch(worker, &tenure) => ended,
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
                tracing::warn!(
                    target: "keylane",
                    stream = %place.name(), reason = %why,
                    "the lease of the stream was lost"
                );
                worker.say(News::Lost(tenure.id()));
                (round, is_lost) = (None, true);
            }
            ended = reading => {
                round = None;
                match ended {
                    Ended::Refused => worker.say(News::Lost(tenure.id())),
                    Ended::Failed(error) => worker.say(News::Failed(error)),
                }
            }
        }
    };
    let has_changed = tenure.has_changed();
    if has_changed {
        worker.counters.add(|counts| counts.changed += 1);
        tracing::warn!(
            target: "keylane",
            stream = %place.name(),
            "the stream, its group or its consumer was removed or created again, or the server \
             has a different history: the messages are released, and the stream is read again"
        );
    }
    if reply.is_some() {
        if has_changed {
            // The next owner finds the group at the progress of this process, even if the group is
            // another one.
            take_over(worker, &mut tenure, lease, let_go).await;
        } else if let Err(error) = tenure.leave().await {
            tracing::debug!(
                target: "keylane",
                ?error,
                "the consumer could not be removed from its group"
            );
        }
        return End::Over(reply);
    }
    if has_changed && began.elapsed() >= LONG_PAUSE {
        return End::Again;
    }
    // Acks on their way are sent first. After a refusal it retries at a limited rate.
    tokio::select! {
        biased;
        _ = lease.lost() => End::Over(None),
        () = let_go.notified() => End::Over(None),
        () = worker.news.closed() => End::Over(None),
        () = sleep(LONG_PAUSE) => End::Again,
    }
}

/// Takes the stream over. Returns whether it is ours.
async fn take_over(
    worker: &Worker,
    tenure: &mut StreamLease,
    lease: &Lease,
    let_go: &Notify,
) -> bool {
    let place = Arc::clone(&tenure.place);
    let place = &place;
    let take = async {
        loop {
            let resume = worker.resumes.get(place.number);
            let taken = tenure.take(worker.config.settings.start_at, resume.as_ref());
            let failure = match taken.await {
                Ok(TakenOver::Well) => return true,
                Ok(TakenOver::Made) => {
                    tracing::info!(target: "keylane", stream = %place.name(), "created the group");
                    return true;
                }
                Ok(TakenOver::SetBack) => {
                    tracing::warn!(
                        target: "keylane",
                        stream = %place.name(),
                        "the consumer was removed: its pending entries are delivered again"
                    );
                    return true;
                }
                Ok(TakenOver::Refused(token)) => {
                    tracing::warn!(
                        target: "keylane",
                        stream = %place.name(),
                        token = %String::from_utf8_lossy(&token),
                        "the stream was taken over under a higher token: check that all members \
                         use the same leases"
                    );
                    return false;
                }
                Err(failure) => failure,
            };
            tokio::select! {
                biased;
                borne = worker.bear(place, Duty::Own, failure) => if let Err(error) = borne {
                    worker.say(News::Failed(error));
                    return false;
                },
                () = let_go.notified() => return false,
                () = worker.news.closed() => return false,
            }
        }
    };
    tokio::select! {
        biased;
        _ = lease.lost() => false,
        is_ours = take => is_ours,
    }
}

/// How often messages that nothing reads are looked for.
const LOOK: Duration = Duration::from_secs(10);

/// Looks for messages under the name of a partitioned stream. The owner of the first partition does
/// that.
async fn watch(worker: &Worker, tenure: &StreamLease) -> Ended {
    if let Some(unread) = worker.config.strays.of(&tenure.place.stream) {
        while !unread.is_said() {
            if is_there(worker, &unread.name).await {
                unread.warn();
            }
            sleep(LOOK).await;
        }
    }
    pending().await
}

/// Whether there is a stream or a list of this name. A user without the right to look sees none.
async fn is_there(worker: &Worker, name: &[u8]) -> bool {
    let mut kind = cmd("TYPE");
    kind.arg(name);
    let kind = worker.link.clone().ask::<String>(&kind).await;
    matches!(kind.as_deref(), Ok("stream" | "list"))
}

/// Trims settled entries at intervals.
async fn trim(worker: &Worker, tenure: &StreamLease) -> Ended {
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
            Ok(Ok(cut)) => {
                worker.counters.add(|counts| counts.trimmed += cut);
                worker.works(&tenure.place, Duty::Trim);
            }
            Ok(Err(_)) => return Ended::Refused,
            Err(failure) => {
                if let Err(error) = worker.bear(&tenure.place, Duty::Trim, failure).await {
                    return Ended::Failed(error);
                }
            }
        }
    }
}
