//! One life of a worker: from the moment at which it joins to that at which its claims end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::SqlInbox;
use crate::error::SqlError;

/// How often workers that are dead are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// Most lanes of them that are freed in one statement.
const FREED: u32 = 256;

/// How often what is old is removed.
const TIDY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Session {
    pub(super) worker: u64,
    lost: watch::Sender<bool>,
    /// Whether the database tells of new messages.
    pub(super) is_told: bool,
    tasks: Vec<JoinHandle<()>>,
}

impl Session {
    /// Joins. `wake` is notified when there may be something to claim.
    pub(super) async fn begin(
        inbox: &SqlInbox,
        name: &str,
        ttl: Duration,
        wake: &Arc<Notify>,
    ) -> Result<Self, SqlError> {
        let asked_at = Instant::now();
        let worker = inbox.limited(inbox.shared.backend.join(name, ttl)).await?;
        let lost = watch::Sender::new(false);
        let mut tasks = vec![
            tokio::spawn(renew(
                inbox.clone(),
                (worker, ttl),
                asked_at + ttl,
                lost.clone(),
            )),
            tokio::spawn(look_after(inbox.clone(), Arc::clone(wake))),
        ];
        let listens = inbox.shared.backend.listen(Arc::clone(wake));
        let is_told = listens.is_some();
        tasks.extend(listens);
        Ok(Self {
            worker,
            lost,
            is_told,
            tasks,
        })
    }

    pub(super) fn lose(&self) {
        self.lost.send_replace(true);
    }

    pub(super) fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Is there when the claims have ended.
    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.lost.subscribe()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Renews the claims of a worker three times as often as they run out. They count as lost before
/// they can have run out at the database: its time began when we asked, or later.
async fn renew(
    inbox: SqlInbox,
    (worker, ttl): (u64, Duration),
    mut ends_at: Instant,
    lost: watch::Sender<bool>,
) {
    loop {
        // Of the time that is left when the last renewal was answered.
        tokio::time::sleep_until(ends_at - ttl * 2 / 3).await;
        loop {
            let asked_at = Instant::now();
            let gives_up_at = ends_at - ttl / 10;
            let renewed = inbox.shared.backend.renew(worker, ttl);
            match tokio::time::timeout_at(gives_up_at, renewed).await {
                Ok(Ok(true)) if asked_at < ends_at => {
                    ends_at = asked_at + ttl;
                    break;
                }
                Ok(Ok(_)) | Err(_) => {
                    lost.send_replace(true);
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(target: "keylane", %error, "the claims of this worker were not renewed");
                    tokio::time::sleep(ttl / 30).await;
                }
            }
        }
    }
}

/// Frees the lanes of the dead, and removes what is old.
async fn look_after(inbox: SqlInbox, wake: Arc<Notify>) {
    let mut tidied_at = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        loop {
            match inbox.limited(inbox.shared.backend.free_dead(FREED)).await {
                Ok(0) => break,
                Ok(freed) => {
                    tracing::info!(target: "keylane", freed, "keys of a worker that has died are free");
                    wake.notify_one();
                }
                Err(error) => {
                    tracing::warn!(target: "keylane", %error, "dead workers were not looked for");
                    break;
                }
            }
        }
        if tidied_at.elapsed() >= TIDY {
            tidied_at = Instant::now();
            let freed = inbox
                .limited(inbox.shared.backend.free_orphans(FREED))
                .await;
            if let Err(error) = freed {
                tracing::warn!(target: "keylane", %error, "keys without a worker were not looked for");
            }
            if let Err(error) = inbox.remove_old().await {
                tracing::warn!(target: "keylane", %error, "old ids were not removed");
            }
        }
    }
}
