//! One feed: a task that looks once a second while there is a viewer, and shares what it sees.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);

/// Most points that are kept for a viewer that comes, or that has lagged.
const MOST_POINTS: usize = 120;

/// What one look sees, as JSON.
#[derive(Debug)]
pub(crate) struct Look {
    /// An object.
    pub(crate) body: String,
    /// A value that is kept for the chart.
    pub(crate) point: Option<String>,
}

type Looking = Pin<Box<dyn Future<Output = Look> + Send>>;

/// A feed. Clones are the same feed.
#[derive(Clone)]
pub(crate) struct Feed(Arc<Shared>);

struct Shared {
    /// Names the process: a viewer sees by it that there is a new one.
    life: String,
    look: Box<dyn Fn() -> Looking + Send + Sync>,
    /// Called when the collector ends.
    rest: Box<dyn Fn() + Send + Sync>,
    latest: watch::Sender<Latest>,
    kept: Mutex<Kept>,
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct Kept {
    runs: bool,
    tick: u64,
    points: VecDeque<(u64, String)>,
}

#[derive(Clone)]
enum Latest {
    /// The collector has not looked yet.
    Nothing,
    Seen(Arc<Seen>),
    /// The collector has panicked: viewers come again.
    Broken,
}

struct Seen {
    tick: u64,
    body: String,
}

/// One event for one viewer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) id: String,
    pub(crate) data: String,
}

impl Feed {
    pub(crate) fn new<F>(
        life: &str,
        closed: CancellationToken,
        look: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Look> + Send + 'static,
    {
        Self::with_rest(life, closed, look, || {})
    }

    /// The same. `rest` is called when there is no viewer any more. If one comes just then, the
    /// next look may come before it.
    pub(crate) fn with_rest<F>(
        life: &str,
        closed: CancellationToken,
        look: impl Fn() -> F + Send + Sync + 'static,
        rest: impl Fn() + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Look> + Send + 'static,
    {
        Self(Arc::new(Shared {
            life: life.to_owned(),
            look: Box::new(move || Box::pin(look())),
            rest: Box::new(rest),
            latest: watch::Sender::new(Latest::Nothing),
            kept: Mutex::default(),
            closed,
        }))
    }

    pub(crate) fn viewers(&self) -> usize {
        self.0.latest.receiver_count()
    }

    /// A viewer, which had the event of this id before. Starts the collector if there is none.
    pub(crate) fn view(&self, last_id: Option<&str>) -> Viewer {
        let shared = &self.0;
        let mut kept = shared.kept();
        let latest = shared.latest.subscribe();
        if !kept.runs {
            kept.runs = true;
            // What was seen before the rest is out of date.
            kept.points.clear();
            shared.latest.send_replace(Latest::Nothing);
            tokio::spawn(collect(Arc::clone(shared)));
        }
        drop(kept);
        let seen = last_id.and_then(|id| shared.tick_of(id)).unwrap_or(0);
        Viewer {
            shared: Arc::clone(shared),
            latest,
            seen,
        }
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tick of an id of this process.
    fn tick_of(&self, id: &str) -> Option<u64> {
        let (life, tick) = id.rsplit_once('-')?;
        if life == self.life {
            tick.parse().ok()
        } else {
            None
        }
    }

    /// Whether there is no viewer left. The lock orders this with a viewer that comes.
    fn rests(&self) -> bool {
        let mut kept = self.kept();
        let rests = self.latest.receiver_count() == 0;
        kept.runs = !rests;
        rests
    }

    fn publish(&self, look: Look) {
        let mut kept = self.kept();
        kept.tick += 1;
        let tick = kept.tick;
        if let Some(point) = look.point {
            if kept.points.len() == MOST_POINTS {
                kept.points.pop_front();
            }
            kept.points.push_back((tick, point));
        }
        drop(kept);
        let seen = Seen {
            tick,
            body: look.body,
        };
        self.latest.send_replace(Latest::Seen(Arc::new(seen)));
    }

    /// What was seen last, with the points that this viewer does not have.
    fn frame(&self, seen: &Seen, since: u64) -> Frame {
        let mut points = String::new();
        for (_, point) in self.kept().points.iter().filter(|(tick, _)| *tick > since) {
            let comma = if points.is_empty() { "" } else { "," };
            let _ = write!(points, "{comma}{point}");
        }
        let (life, tick, body) = (&self.life, seen.tick, &seen.body);
        let data =
            format!(r#"{{"life":"{life}","tick":{tick},"points":[{points}],"body":{body}}}"#);
        Frame {
            id: format!("{life}-{tick}"),
            data,
        }
    }
}

/// Looks once a second until there is no viewer.
async fn collect(shared: Arc<Shared>) {
    let unwound = OnUnwind(&shared);
    let mut second = interval(SECOND);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = second.tick() => {}
            () = shared.closed.cancelled() => break,
        }
        if shared.rests() {
            break;
        }
        let look = (shared.look)().await;
        shared.publish(look);
    }
    std::mem::forget(unwound);
    (shared.rest)();
}

/// If the collector panics, or its runtime ends, another viewer starts another one.
struct OnUnwind<'a>(&'a Shared);

impl Drop for OnUnwind<'_> {
    fn drop(&mut self) {
        self.0.kept().runs = false;
        self.0.latest.send_replace(Latest::Broken);
        (self.0.rest)();
    }
}

/// One viewer of a feed.
pub(crate) struct Viewer {
    shared: Arc<Shared>,
    latest: watch::Receiver<Latest>,
    /// The tick of the last event.
    seen: u64,
}

impl Viewer {
    /// The newest event that this viewer has not had. One that lags misses the ones between, but
    /// not their points. `None` if the feed has ended.
    ///
    /// Cancel safety: an event is lost with the future, and the next one replaces it.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if self.shared.closed.is_cancelled() {
                return None;
            }
            let latest = self.latest.borrow_and_update().clone();
            match latest {
                Latest::Seen(seen) if seen.tick > self.seen => {
                    let frame = self.shared.frame(&seen, self.seen);
                    self.seen = seen.tick;
                    return Some(frame);
                }
                Latest::Broken => return None,
                Latest::Seen(_) | Latest::Nothing => {}
            }
            tokio::select! {
                changed = self.latest.changed() => changed.ok()?,
                () = self.shared.closed.cancelled() => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn counting(life: &str) -> (Feed, Arc<AtomicU64>) {
        let looks = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&looks);
        let feed = Feed::new(life, CancellationToken::new(), move || {
            let n = counted.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                Look {
                    body: "{}".into(),
                    point: Some(n.to_string()),
                }
            }
        });
        (feed, looks)
    }

    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_without_viewers_does_not_look() {
        let (feed, looks) = counting("a");
        pass(100).await;
        assert_eq!(looks.load(Ordering::Relaxed), 0);
        let mut viewer = feed.view(None);
        for tick in 1..=3 {
            assert_eq!(viewer.next().await.unwrap().id, format!("a-{tick}"));
        }
        drop(viewer);
        pass(100).await;
        assert_eq!(looks.load(Ordering::Relaxed), 3);
        assert!(!feed.0.kept().runs);
        // What it saw before is not shown to the next viewer.
        let frame = feed.view(None).next().await.unwrap();
        assert_eq!((&*frame.id, looks.load(Ordering::Relaxed)), ("a-4", 4));
        assert!(frame.data.contains(r#""points":[4]"#), "{}", frame.data);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_for_viewers_goes_with_the_last_one() {
        let rests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&rests);
        let look = || async {
            Look {
                body: "{}".into(),
                point: None,
            }
        };
        let rest = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let feed = Feed::with_rest("a", CancellationToken::new(), look, rest);
        let (mut first, mut last) = (feed.view(None), feed.view(None));
        first.next().await.unwrap();
        drop(first);
        last.next().await.unwrap();
        assert_eq!(rests.load(Ordering::Relaxed), 0);
        drop(last);
        pass(2).await;
        assert_eq!(rests.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_viewers_cost_one_look_a_second() {
        let (feed, looks) = counting("a");
        let mut viewers: Vec<_> = (0..50).map(|_| feed.view(None)).collect();
        for _ in 0..10 {
            for viewer in &mut viewers {
                viewer.next().await.unwrap();
            }
        }
        assert_eq!((feed.viewers(), looks.load(Ordering::Relaxed)), (50, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_that_lags_gets_the_last_look_and_all_points() {
        let (feed, _looks) = counting("a");
        let (mut lags, mut other) = (feed.view(None), feed.view(None));
        assert_eq!(lags.next().await.unwrap().id, "a-1");
        for _ in 0..5 {
            other.next().await.unwrap();
        }
        let frame = lags.next().await.unwrap();
        assert_eq!(frame.id, "a-5");
        assert!(
            frame.data.contains(r#""points":[2,3,4,5]"#),
            "{}",
            frame.data
        );
        // One that comes again goes on where it was, unless the process is another one.
        let again = feed.view(Some("a-3")).next().await.unwrap();
        assert!(again.data.contains(r#""points":[4,5]"#), "{}", again.data);
        let other_life = feed.view(Some("b-3")).next().await.unwrap();
        assert!(other_life.data.contains(r#""points":[1,2,3,4,5]"#));
        let same = feed.view(Some("a-5")).next().await.unwrap();
        assert_eq!(same.id, "a-6", "nothing comes twice");
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_the_viewers_and_the_next_one_starts_anew() {
        let looks = AtomicU64::new(0);
        let feed = Feed::new("a", CancellationToken::new(), move || {
            let n = looks.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(n != 1, "planned");
                Look {
                    body: "{}".into(),
                    point: None,
                }
            }
        });
        let mut viewer = feed.view(None);
        assert!(viewer.next().await.is_some());
        assert_eq!(viewer.next().await, None);
        assert!(feed.view(None).next().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_feed_ends_its_viewers() {
        let closed = CancellationToken::new();
        let feed = Feed::new("a", closed.clone(), || async {
            Look {
                body: "{}".into(),
                point: None,
            }
        });
        let mut viewer = feed.view(None);
        assert!(viewer.next().await.is_some());
        closed.cancel();
        assert_eq!(viewer.next().await, None);
    }
}
