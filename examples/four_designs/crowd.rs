//! Many users who send one message each and are silent from then on: what does each design keep of
//! them?

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::designs::{Choice, Design, DesignError};
use crate::handler::Handler;
use crate::traffic::{Message, User};

/// How often the memory is looked at.
const LOOKS: u32 = 40;

/// Room for messages in the designs of the engine.
const ROOM: usize = 1_024;

/// A design in which nothing ends for so long has lost a message.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a design keeps while there is nothing to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    /// Users so far, each of whom has sent a message that was handled.
    pub(crate) users: User,
    pub(crate) queues: usize,
    pub(crate) tasks: usize,
    /// Bytes of this process, beyond those before the design; `None` where no system says it.
    pub(crate) bytes: Option<u64>,
}

/// What came out of one design.
#[derive(Debug)]
pub(crate) struct Crowd {
    pub(crate) choice: Choice,
    /// For sending and handling everything.
    pub(crate) took: Duration,
    /// As users came, up to all of them.
    pub(crate) kept: Vec<Kept>,
}

impl Crowd {
    /// Each design. The one that keeps most is last: memory that it has freed would be used by the
    /// next one, and would not show.
    pub(crate) async fn of_each(users: User) -> Result<Vec<Self>, DesignError> {
        let mut all = Vec::new();
        for choice in [
            Choice::Single,
            Choice::Static,
            Choice::Dynamic,
            Choice::PerKey,
        ] {
            all.push(choice.crowd(users, ROOM).await?);
        }
        all.sort_by_key(|crowd| {
            Choice::ALL
                .iter()
                .position(|choice| *choice == crowd.choice)
        });
        Ok(all)
    }

    /// Lets users come, a part of them at a time. Each part is handled before the next one comes.
    pub(crate) async fn measure<D: Design>(
        choice: Choice,
        users: User,
        handler: &Arc<Handler>,
        start: impl FnOnce(Arc<Handler>) -> Result<D, DesignError>,
    ) -> Result<Self, DesignError> {
        let (before, tasks) = (memory(), tasks_alive());
        let mut design = start(Arc::clone(handler))?;
        let started = Instant::now();
        let (mut kept, mut came) = (Vec::new(), 0);
        for look in 1..=LOOKS {
            let until = (u64::from(users) * u64::from(look) / u64::from(LOOKS)) as User;
            for user in came + 1..=until {
                design.send(Message::of_crowd(user)).await?;
            }
            came = until;
            until_handled(handler, came).await;
            kept.push(Kept {
                users: came,
                queues: design.queues(),
                tasks: tasks_alive().saturating_sub(tasks),
                bytes: memory()
                    .zip(before)
                    .map(|(now, before)| now.saturating_sub(before)),
            });
        }
        let took = started.elapsed();
        design.finish().await?;
        // Its last tasks leave, or they would be in the count of the next design.
        for _ in 0..100 {
            if tasks_alive() <= tasks {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { choice, took, kept })
    }

    /// What it keeps of all users.
    pub(crate) fn last(&self) -> Kept {
        self.kept[self.kept.len() - 1]
    }
}

/// Waits until so many messages are handled, and those who have handled them are at rest.
async fn until_handled(handler: &Handler, messages: User) {
    while handler.handled() < u64::from(messages) {
        if timeout(PATIENCE, handler.one_more()).await.is_err() {
            break; // and the table says that a message is missing
        }
    }
    sleep(Duration::from_millis(2)).await;
}

/// Of this runtime.
fn tasks_alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// The bytes of this process in memory, where the system has a file that says it.
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1_024)
}
