//! The life of a worker: from the moment at which it joins until its claims end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keylane_source::Hold;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::SqlInbox;
use super::super::turn::WorkerState;
use super::backlog::Look;
use super::failures::{Failures, Part, fail};
use crate::error::SqlError;

/// How often the source looks for dead workers.
const LOOK: Duration = Duration::from_secs(1);

/// The most lanes of dead workers that one statement frees.
const FREED: u32 = 256;

/// How often old rows are removed.
const TIDY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Session {
    pub(super) worker: u64,
    /// How many renewals were answered.
    pub(super) renewals: Arc<AtomicU64>,
    lost: watch::Sender<bool>,
    /// Until when the claims are held, by this clock.
    hold: watch::Receiver<Hold>,
    /// Whether the claims count as lost because they have changed although they have not run out.
    is_changed: AtomicBool,
    /// Whether the database announces new messages.
    pub(super) is_told: bool,
    tasks: Vec<JoinHandle<()>>,
}

impl Session {
    /// Joins. Notifies `wake` when there may be something to claim.
    pub(super) async fn begin(
        inbox: SqlInbox,
        name: String,
        ttl: Duration,
        (wake, failures): (Arc<Notify>, Arc<Failures>),
        backlog: Look,
    ) -> Result<Self, SqlError> {
        inbox.enter().await?;
        let asked_at = Instant::now();
        let worker = inbox.limited(inbox.shared.backend.join(&name, ttl)).await?;
        let lost = watch::Sender::new(false);
        let (renews, hold) = watch::channel(held(asked_at, ttl));
        let renewals = Arc::new(AtomicU64::new(0));
        let renewed = {
            let (inbox, renewals) = (inbox.clone(), Arc::clone(&renewals));
            move || {
                let (inbox, renewals) = (inbox.clone(), Arc::clone(&renewals));
                async move { renew_once(&inbox, (worker, ttl), &renewals).await }
            }
        };
        let mut tasks = vec![
            tokio::spawn(renew(
                renewed,
                (asked_at, ttl),
                (lost.clone(), renews),
                Arc::clone(&failures),
            )),
            tokio::spawn(look_after(
                inbox.clone(),
                Arc::clone(&wake),
                failures,
                backlog,
            )),
        ];
        let listens = inbox.shared.backend.listen(wake);
        let is_told = listens.is_some();
        tasks.extend(listens);
        Ok(Self {
            worker,
            renewals,
            lost,
            hold,
            is_changed: AtomicBool::new(false),
            is_told,
            tasks,
        })
    }

    /// Records that the claims have changed, and so count as lost.
    pub(super) fn lose(&self) {
        self.is_changed.store(true, Ordering::SeqCst);
        self.lost.send_replace(true);
    }

    pub(super) fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Returns whether the claims go on at the database: until they run out, they would keep their
    /// keys from all other workers, and from this one under its next name.
    pub(super) fn is_to_be_left(&self) -> bool {
        self.is_changed.load(Ordering::SeqCst)
    }

    /// Returns a receiver that becomes true when the claims end.
    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.lost.subscribe()
    }

    /// Returns a receiver of how long the claims last.
    pub(super) fn hold(&self) -> watch::Receiver<Hold> {
        self.hold.clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Returns for how long claims are held, if the call that has renewed them was sent then: a tenth
/// shorter than at the database.
fn held(asked_at: Instant, ttl: Duration) -> Hold {
    let lasts = ttl - ttl / 10;
    Hold::new(lasts, asked_at + lasts)
}

/// Renews the claims of a worker three times per lifetime. They count as lost before they can have
/// run out at the database: its time began when we asked, or later.
async fn renew<F>(
    renewed: impl Fn() -> F,
    (asked_at, ttl): (Instant, Duration),
    (lost, renews): (watch::Sender<bool>, watch::Sender<Hold>),
    failures: Arc<Failures>,
) where
    F: Future<Output = Result<WorkerState, SqlError>>,
{
    let mut ends_at = asked_at + ttl;
    loop {
        // A third of the ttl after the last answered renewal was asked for.
        tokio::time::sleep_until(ends_at - ttl * 2 / 3).await;
        loop {
            let asked_at = Instant::now();
            let gives_up_at = held(ends_at - ttl, ttl).until;
            match tokio::time::timeout_at(gives_up_at, renewed()).await {
                Ok(Ok(WorkerState::Alive)) if asked_at < ends_at => {
                    ends_at = asked_at + ttl;
                    renews.send_replace(held(asked_at, ttl));
                    failures.recover(&Part::Claims);
                    break;
                }
                Ok(Ok(standing)) => {
                    tell(&standing);
                    lost.send_replace(true);
                    return;
                }
                Ok(Err(error)) => {
                    fail(&failures, Part::Claims, &error);
                    // A call that fails at once, such as that of a closed pool, never exceeds the
                    // timeout.
                    if Instant::now() >= gives_up_at {
                        lost.send_replace(true);
                        return;
                    }
                    tokio::time::sleep(ttl / 30).await;
                }
                Err(_) => {
                    lost.send_replace(true);
                    return;
                }
            }
        }
    }
}

/// Renews once. An answered renewal stays, unless the database goes on from an older state.
pub(super) async fn renew_once(
    inbox: &SqlInbox,
    (worker, ttl): (u64, Duration),
    renewals: &AtomicU64,
) -> Result<WorkerState, SqlError> {
    let heard = renewals.load(Ordering::SeqCst);
    let standing = inbox.shared.backend.renew(worker, ttl, heard).await?;
    if standing == WorkerState::Alive {
        renewals.fetch_add(1, Ordering::SeqCst);
    }
    Ok(standing)
}

/// Logs that the database goes on from another state than that in which the worker joined.
pub(super) fn tell(standing: &WorkerState) {
    if let WorkerState::Elsewhere { joined, now } = standing {
        tracing::warn!(
            target: "keylane",
            joined,
            now,
            "the database has a different history than the one that this worker joined: the \
             worker releases its claims and reads again"
        );
    }
}

/// Frees the lanes of dead workers, removes old rows, and publishes what waits.
async fn look_after(
    inbox: SqlInbox,
    wake: Arc<Notify>,
    failures: Arc<Failures>,
    mut waiting: Look,
) {
    let told = |part, done: Result<u64, SqlError>| match done {
        Ok(done) => {
            failures.recover(&part);
            done
        }
        Err(error) => {
            fail(&failures, part, &error);
            0
        }
    };
    let backend = &inbox.shared.backend;
    let mut tidied_at = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        loop {
            let freed = inbox.limited(backend.free_dead(FREED)).await;
            let freed = told(Part::Dead, freed);
            if freed == 0 {
                break;
            }
            tracing::info!(
                target: "keylane",
                keys = freed,
                "the keys of a dead worker were released"
            );
            wake.notify_one();
        }
        if tidied_at.elapsed() >= TIDY {
            tidied_at = Instant::now();
            let freed = inbox.limited(backend.free_orphans(FREED)).await;
            told(Part::Orphans, freed);
            told(Part::Known, inbox.remove_old().await);
        }
        waiting.look(&inbox).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn claims_that_can_never_be_renewed_end_before_they_run_out() {
        const TTL: Duration = Duration::from_secs(15);
        let (asked_at, failures) = (Instant::now(), Arc::default());
        let lost = watch::Sender::new(false);
        let fails_at_once = || std::future::ready(Err(SqlError::timed_out()));
        let (told, hold) = watch::channel(held(asked_at, TTL));
        let renews = renew(
            fails_at_once,
            (asked_at, TTL),
            (lost.clone(), told),
            failures,
        );
        let ended = tokio::time::timeout_at(asked_at + TTL, renews).await;
        assert!(ended.is_ok() && *lost.borrow());
        assert_eq!(hold.borrow().extended_at(), Some(asked_at));
        assert!(hold.borrow().until <= Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn claims_are_held_from_the_last_renewal_that_was_answered() {
        const TTL: Duration = Duration::from_secs(15);
        let (asked_at, failures) = (Instant::now(), Arc::default());
        let (told, hold) = watch::channel(held(asked_at, TTL));
        let well = || std::future::ready(Ok(WorkerState::Alive));
        let renews = renew(
            well,
            (asked_at, TTL),
            (watch::Sender::new(false), told),
            failures,
        );
        let _ = tokio::time::timeout_at(asked_at + TTL * 3, renews).await;
        let hold = *hold.borrow();
        assert_eq!(hold.lasts, TTL * 9 / 10);
        assert!(hold.until > asked_at + TTL * 3, "{hold:?}");
    }
}
