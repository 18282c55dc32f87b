//! One design under the whole load, and what came out of it.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{sleep_until, timeout};

use crate::designs::{Choice, Design, DesignError};
use crate::handler::{Handler, Started};
use crate::traffic::{SLOW, Traffic, User};

/// What came out of one design.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) choice: Choice,
    /// From the start to the end of the last handler.
    pub(crate) total: Duration,
    pub(crate) sent: u64,
    pub(crate) handled: u64,
    pub(crate) breaks: u64,
    started: Vec<Vec<Started>>,
}

impl Outcome {
    /// Sends each message when it is due, however far the handlers are: an open loop.
    pub(crate) async fn measure<D: Design>(
        choice: Choice,
        traffic: &Traffic,
        handler: &Handler,
        start: impl FnOnce() -> Result<D, DesignError>,
    ) -> Result<Self, DesignError> {
        let sent = traffic.messages.len() as u64;
        let bar = bar(choice.name(), sent);
        let mut design = start()?;
        for message in &traffic.messages {
            sleep_until(handler.start() + message.due).await;
            design.send(*message).await?;
            bar.set_position(handler.handled());
        }
        while handler.handled() < sent {
            let more = timeout(PATIENCE, handler.one_more()).await;
            if more.is_err() {
                break; // and the report says that messages are missing
            }
            bar.set_position(handler.handled());
        }
        let total = handler.start().elapsed();
        design.finish().await?;
        bar.finish_and_clear();
        Ok(Self {
            choice,
            total,
            sent,
            handled: handler.handled(),
            breaks: handler.breaks(),
            started: (1..=traffic.users)
                .map(|user| handler.started(user))
                .collect(),
        })
    }

    /// Every message handled once, in order, one at a time.
    pub(crate) fn is_good(&self) -> bool {
        self.breaks == 0 && self.handled == self.sent
    }

    pub(crate) fn started(&self, user: User) -> &[Started] {
        &self.started[user as usize - 1]
    }

    pub(crate) fn waits(&self, user: User) -> Waits {
        Waits::of(self.started(user).iter())
    }

    /// The waits of all but the slow user together.
    pub(crate) fn waits_of_others(&self) -> Waits {
        let others = (1..).zip(&self.started).filter(|(user, _)| *user != SLOW);
        Waits::of(others.flat_map(|(_, started)| started))
    }

    /// Users, those who waited longest first.
    pub(crate) fn worst(&self) -> Vec<(User, Waits)> {
        let users = 1..=self.started.len() as User;
        let mut worst: Vec<(User, Waits)> = users.map(|user| (user, self.waits(user))).collect();
        worst.sort_by_key(|(user, waits)| (std::cmp::Reverse(waits.p99), *user));
        worst
    }
}

/// Waits in short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

impl Waits {
    fn of<'a>(started: impl Iterator<Item = &'a Started>) -> Self {
        let mut waits: Vec<Duration> = started.map(|started| started.wait).collect();
        waits.sort_unstable();
        // The least wait that so many per cent of the messages do not exceed.
        let at = |percent: usize| {
            let rank = (waits.len() * percent).div_ceil(100).max(1);
            waits.get(rank - 1).copied().unwrap_or_default()
        };
        Self {
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

/// A design in which nothing ends for so long has lost a message.
const PATIENCE: Duration = Duration::from_secs(30);

/// On a terminal only, and on stderr.
fn bar(name: &'static str, total: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{prefix:27} {wide_bar} {human_pos}/{human_len} handled")
            .expect("the template is well-formed");
    ProgressBar::new(total).with_prefix(name).with_style(style)
}
