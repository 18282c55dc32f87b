//! Waits for elements in a list, on a connection of its own.
//!
//! `BLMOVE` from the end of a list to the same end of it changes nothing, and waits while the list
//! is empty. So a call that is dropped, or a process that is paused in it, loses no element: a
//! script takes the element, in a round trip of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{Value, cmd};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::outbox::ListOutbox;
use crate::link::Link;
use crate::server::Redis;

/// How long one call waits.
const WAIT: Duration = Duration::from_secs(5);

/// The pause after a server cannot be asked, or refuses the wait. The session looks at the list by
/// itself as well.
const PAUSE: Duration = Duration::from_millis(200);

/// The task. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Wake {
    /// Notified if the list was empty: the task reports the next element.
    arm: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Wake {
    pub(super) fn new(
        redis: Redis,
        list: Bytes,
        woken: Arc<Notify>,
        mailbox: Arc<ListOutbox>,
    ) -> Self {
        let arm = Arc::new(Notify::new());
        let task = tokio::spawn(listen(redis, list, Arc::clone(&arm), woken, mailbox));
        Self { arm, task }
    }

    pub(super) fn arm(&self) {
        self.arm.notify_one();
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(
    redis: Redis,
    list: Bytes,
    arm: Arc<Notify>,
    woken: Arc<Notify>,
    mailbox: Arc<ListOutbox>,
) {
    let mut link: Option<Link> = None;
    let mut is_refused = false;
    let say = |what| {
        mailbox.lock().wait = Some(what);
        mailbox.to_source.notify_one();
    };
    let mut wait = cmd("BLMOVE");
    wait.arg(&*list).arg(&*list).arg("RIGHT").arg("RIGHT");
    wait.arg(WAIT.as_secs());
    loop {
        arm.notified().await;
        loop {
            let asked = async {
                let open = match &mut link {
                    Some(open) => open,
                    none => none.insert(redis.connect_for(WAIT).await?),
                };
                open.ask::<Value>(&wait).await
            };
            match asked.await {
                Ok(value) => {
                    if std::mem::take(&mut is_refused) {
                        say(Ok(()));
                    }
                    if value != Value::Nil {
                        break;
                    }
                }
                // Perhaps only the connection broke: a new one will show.
                Err(error) if error.breaks_connection() && link.take().is_some() => {
                    tokio::time::sleep(PAUSE).await;
                }
                // The session looks now, and again at intervals.
                Err(error) => {
                    is_refused = true;
                    say(Err(error.to_string()));
                    tokio::time::sleep(PAUSE).await;
                    break;
                }
            }
        }
        woken.notify_one();
    }
}
