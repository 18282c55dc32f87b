//! What the application sees of a source that is consumed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_connector::lock;
use tokio::sync::watch;
use tokio::time::Instant;

use super::counts::{Counters, StreamCounts};
use super::id::EntryId;

/// How often the streams are shown, while something looks at them.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// For how long they are shown after a look.
const SHOWN_FOR: Duration = Duration::from_secs(120);

/// A handle to watch a source that is consumed. It can be cloned. Get it from
/// [`StreamSource::watch`](crate::StreamSource::watch) before the source is consumed.
///
/// # Examples
///
/// ```no_run
/// use keylane_redis::{Redis, StreamSource};
///
/// # fn main() -> Result<(), keylane_redis::ConfigError> {
/// let redis = Redis::at("redis://localhost:6379/0")?;
/// let source = StreamSource::builder(&redis, "billing")
///     .partitions("orders", 16)
///     .build()?;
/// let watch = source.watch();
/// // Once a second, while a dispatcher consumes the source:
/// for part in watch.parts() {
///     println!("{}: {:?} entries behind", part.stream, part.behind());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StreamWatch {
    counters: Counters,
    shown: Shown,
}

impl StreamWatch {
    pub(super) fn new(counters: &Counters, shown: &Shown) -> Self {
        Self {
            counters: counters.clone(),
            shown: shown.clone(),
        }
    }

    /// Returns the current counters.
    pub fn counts(&self) -> StreamCounts {
        self.counters.get()
    }

    /// Returns the streams that this process owns, as they were half a second ago, and those that
    /// it cannot take over now, with the reason. Streams of other members of the group are not
    /// among them. They are in the order in which they were named. They are older while the source
    /// is in a call to the server, and while it waits to be opened again after a failure.
    ///
    /// It sends nothing to the server. A call lets the source look at its streams twice a second,
    /// and ask for the [lag](StreamPart::lag) of each every five seconds, for the next two
    /// minutes. Without a call it does neither. So the first call, and one after a longer time,
    /// returns nothing, and one a second later what is known then.
    pub fn parts(&self) -> Vec<StreamPart> {
        self.shown.look()
    }
}

/// A stream that a source owns.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPart {
    /// The name of the stream. Bytes that are no UTF-8 are replaced.
    pub stream: String,
    /// The frontier: all entries below this one are settled, as far as the group has read. It is
    /// the first entry that is not settled; if there is none, the last one that the group has read.
    /// `None`: the owner has not read yet.
    pub frontier: Option<EntryId>,
    /// How many entries were handed over and have not settled.
    pub open: usize,
    /// How many entries are read ahead, and wait to be handed over.
    pub waiting: usize,
    /// How many entries above the frontier are settled, of those that were handed over since the
    /// pending entries of the stream were read last: after a take-over, or a return.
    pub beyond: u64,
    /// How many entries the group has read and not acked, as `XINFO GROUPS` said five seconds
    /// before the rest at most. `None`: it is not known.
    pub pending: Option<u64>,
    /// How many entries the group has not read: the `lag` of `XINFO GROUPS`, five seconds before
    /// the rest at most. `None`: the source could not ask for it or has not yet, or the server does
    /// not know it, because its version is below 7.0, or because entries were deleted that the
    /// group had not read.
    pub lag: Option<u64>,
    /// Why the stream cannot be read, waited for or trimmed now. The source tries again; the other
    /// streams go on.
    pub failure: Option<String>,
}

impl StreamPart {
    /// A stream of which nothing is known.
    pub(super) fn unknown(stream: &[u8]) -> Self {
        Self {
            stream: String::from_utf8_lossy(stream).into_owned(),
            ..Self::default()
        }
    }

    /// Returns how far the group is behind the end of the stream, in entries: those that it has not
    /// acked, whether it has read them ([`pending`](Self::pending)) or not ([`lag`](Self::lag)).
    pub fn behind(&self) -> Option<u64> {
        Some(self.pending?.saturating_add(self.lag?))
    }
}

/// What a source shows of its streams. A handle: its clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown(Arc<Board>);

#[derive(Debug, Default)]
struct Board {
    /// The time of the last look.
    looked_at: watch::Sender<Option<Instant>>,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    parts: Vec<StreamPart>,
    since: Option<Instant>,
}

impl Shown {
    fn look(&self) -> Vec<StreamPart> {
        let is_first = self.0.looked_at.send_if_modified(|at| {
            let is_first = !is_recent(at);
            *at = Some(Instant::now());
            is_first
        });
        let mut now = lock(&self.0.now);
        if is_first {
            // What was shown for the look before may be hours old.
            *now = Now::default();
        }
        now.parts.clone()
    }

    /// Whether something looks at it.
    pub(super) fn is_looked_at(&self) -> bool {
        is_recent(&self.0.looked_at.borrow())
    }

    /// Waits until something looks at it.
    pub(super) async fn looked_at(&self) {
        // It only fails without a sender.
        let _ = self.0.looked_at.subscribe().wait_for(is_recent).await;
    }

    /// When the streams are to be shown again, if something looks at them.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let since = self.is_looked_at().then(|| lock(&self.0.now).since)?;
        Some(since.map_or_else(Instant::now, |since| since + SHOWN_EVERY))
    }

    pub(super) fn show(&self, parts: Vec<StreamPart>) {
        *lock(&self.0.now) = Now {
            parts,
            since: Some(Instant::now()),
        };
    }
}

fn is_recent(look: &Option<Instant>) -> bool {
    look.is_some_and(|at| at.elapsed() < SHOWN_FOR)
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn streams_are_shown_while_something_looks() {
        let shown = Shown::default();
        assert_eq!(shown.due_at(), None);
        let waiting = tokio::spawn({
            let shown = shown.clone();
            async move { shown.looked_at().await }
        });
        sleep(2 * SHOWN_FOR).await;
        assert!(!waiting.is_finished());
        assert_eq!(shown.look(), []);
        waiting.await.unwrap();
        assert_eq!(shown.due_at(), Some(Instant::now()));
        let parts = vec![StreamPart::unknown(b"orders")];
        shown.show(parts.clone());
        for _ in 0..3 {
            assert_eq!(shown.look(), parts);
            advance(SHOWN_FOR - SHOWN_EVERY).await;
            assert!(shown.is_looked_at());
        }
        advance(SHOWN_EVERY).await;
        assert!(!shown.is_looked_at());
        assert_eq!(shown.due_at(), None);
        // What was known then is not shown as if it were known now.
        assert_eq!(shown.look(), []);
        assert_eq!(shown.due_at(), Some(Instant::now()));
    }
}
