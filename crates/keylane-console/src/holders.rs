//! Who has the lease of a key: a call to the store of the leases, so it is asked for only when a
//! viewer looks at the lane, and once a second for all viewers. One lane at a time is asked about:
//! the store renews leases over the same connections.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use keylane::error::BoxError;
use keylane::lease::LaneHolder;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::rows::{cut, ms};

/// How long an answer counts, an error too.
const FRESH: Duration = Duration::from_secs(1);

/// How long a call may take. The page of the lane waits for it.
const LIMIT: Duration = Duration::from_secs(1);

/// How long a page waits for its turn, while another lane is asked about. Then it shows the last
/// answer.
const TURN: Duration = Duration::from_millis(250);

/// How long the last answer is shown, with its age.
const KEPT: Duration = Duration::from_secs(60);

/// Who has the lease of a key, or why that is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum HolderRow {
    Held {
        owner: String,
        /// As text: it is a number of 64 bits.
        token: String,
        /// How long it lasts at most, unless it is renewed.
        #[serde(skip_serializing_if = "Option::is_none")]
        lasts_ms: Option<u64>,
        /// `lasts_ms` counts from the end of its process.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        ends_with_session: bool,
    },
    Unknown {
        why: String,
    },
    /// Only with an age: an answer of now is left out instead.
    Free {},
}

/// What is shown: an answer, and how old it is if it is not of now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct HolderView {
    #[serde(flatten)]
    pub(crate) row: HolderRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) age_ms: Option<u64>,
}

/// The last answers of one dispatcher, by the ids of the lanes.
#[derive(Debug)]
pub(crate) struct Holders {
    places: Mutex<HashMap<String, Arc<Place>>>,
    /// One call at a time.
    turn: Semaphore,
}

/// The last answer, and when it came. Locked by the one that asks: the others wait for its answer.
type Place = tokio::sync::Mutex<Option<(Instant, Option<HolderRow>)>>;

impl Default for Holders {
    fn default() -> Self {
        Self {
            places: Mutex::default(),
            turn: Semaphore::new(1),
        }
    }
}

impl Holders {
    /// Returns the last answer, or asks anew. If it does not get its turn, it returns the last
    /// answer with its age. `None`: the lease is free, or none is used.
    ///
    /// Cancel safety: if the future is dropped while it asks, the next viewer asks.
    pub(crate) async fn ask<F>(&self, id: &str, call: F) -> Option<HolderView>
    where
        F: Future<Output = Result<Option<LaneHolder>, BoxError>>,
    {
        let place = self.place(id);
        let mut seen = place.lock().await;
        if let Some((at, answer)) = &*seen
            && at.elapsed() < FRESH
        {
            return answer.clone().map(HolderRow::now);
        }
        let Ok(_turn) = timeout(TURN, self.turn.acquire()).await else {
            return Some(last(seen.as_ref()));
        };
        let answer = answer(call).await;
        *seen = Some((Instant::now(), answer.clone()));
        answer.map(HolderRow::now)
    }

    fn place(&self, id: &str) -> Arc<Place> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|_, place| Arc::strong_count(place) > 1 || is_kept(place));
        Arc::clone(places.entry(id.to_owned()).or_default())
    }
}

fn is_kept(place: &Place) -> bool {
    let seen = place.try_lock();
    seen.is_ok_and(|seen| seen.as_ref().is_some_and(|(at, _)| at.elapsed() < KEPT))
}

/// What is shown without an answer of now.
fn last(seen: Option<&(Instant, Option<HolderRow>)>) -> HolderView {
    match seen {
        Some((at, answer)) => {
            let row = answer.clone().unwrap_or(HolderRow::Free {});
            row.aged(ms(at.elapsed()))
        }
        None => {
            let why = "not known yet: the leases are asked about another lane".to_owned();
            HolderRow::Unknown { why }.now()
        }
    }
}

async fn answer<F>(call: F) -> Option<HolderRow>
where
    F: Future<Output = Result<Option<LaneHolder>, BoxError>>,
{
    // The user's code may panic, and must not end the page.
    let why = match timeout(LIMIT, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(Ok(holder))) => return holder.map(HolderRow::of),
        Ok(Ok(Err(error))) => cut(&error.to_string()),
        Ok(Err(_)) => "asking the leases has panicked".to_owned(),
        Err(_) => format!("the leases have not answered within {LIMIT:?}"),
    };
    Some(HolderRow::Unknown { why })
}

impl HolderRow {
    fn of(holder: LaneHolder) -> Self {
        Self::Held {
            owner: cut(&holder.owner),
            token: holder.token.to_string(),
            lasts_ms: holder.remaining.map(ms),
            ends_with_session: holder.ends_with_session,
        }
    }

    fn now(self) -> HolderView {
        HolderView {
            row: self,
            age_ms: None,
        }
    }

    /// An answer of so long ago: less time is left of what it says.
    fn aged(mut self, age_ms: u64) -> HolderView {
        if let Self::Held {
            lasts_ms,
            ends_with_session: false,
            ..
        } = &mut self
        {
            *lasts_ms = lasts_ms.map(|lasts| lasts.saturating_sub(age_ms));
        }
        HolderView {
            row: self,
            age_ms: Some(age_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::future::{join_all, pending};
    use tokio::time::sleep;

    use super::*;

    fn row(token: u64) -> HolderRow {
        HolderRow::of(LaneHolder::new("host-7", token, Some(10 * FRESH)))
    }

    fn held(token: u64) -> Option<HolderView> {
        Some(row(token).now())
    }

    fn unknown(why: &str) -> Option<HolderView> {
        let why = why.to_owned();
        Some(HolderRow::Unknown { why }.now())
    }

    #[tokio::test(start_paused = true)]
    async fn many_viewers_cost_one_call_a_second_for_each_lane() {
        let (holders, calls) = (Holders::default(), AtomicU64::new(0));
        let call = async || {
            let token = calls.fetch_add(1, Ordering::Relaxed) + 1;
            sleep(Duration::from_millis(100)).await;
            Ok(Some(LaneHolder::new("host-7", token, Some(10 * FRESH))))
        };
        let all = join_all((0..50).map(|_| holders.ask("a", call()))).await;
        assert!(all.iter().all(|answer| *answer == held(1)), "{all:?}");
        assert_eq!(holders.ask("b", call()).await, held(2));
        sleep(FRESH).await;
        assert_eq!(holders.ask("a", call()).await, held(3));
        // What is not looked at any more is forgotten.
        sleep(KEPT).await;
        drop(holders.ask("c", call()).await);
        assert_eq!(holders.places.lock().unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_known_is_a_text_and_counts_as_long() {
        let holders = Holders::default();
        let silent = || holders.ask("a", pending());
        let before = Instant::now();
        let all = join_all((0..50).map(|_| silent())).await;
        let why = unknown("the leases have not answered within 1s");
        assert!(all.iter().all(|answer| *answer == why), "{all:?}");
        assert_eq!(before.elapsed(), LIMIT, "they do not wait in turn");
        let failed = holders.ask("b", async { Err("no route".into()) }).await;
        assert_eq!(failed, unknown("no route"));
        let panics = holders.ask("c", async { panic!("planned") }).await;
        assert_eq!(panics, unknown("asking the leases has panicked"));
    }

    #[tokio::test(start_paused = true)]
    async fn one_lane_at_a_time_is_asked_about() {
        let holders = Holders::default();
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let call = async |token: u64, lasts: Duration| {
            let before = now.fetch_add(1, Ordering::Relaxed);
            most.fetch_max(before + 1, Ordering::Relaxed);
            sleep(lasts).await;
            now.fetch_sub(1, Ordering::Relaxed);
            Ok((token > 0).then(|| LaneHolder::new("host-7", token, Some(10 * FRESH))))
        };
        // Those that are fast take turns.
        let fast = Duration::from_millis(10);
        let ids: Vec<_> = (1..=20).map(|id| id.to_string()).collect();
        let all = join_all((1..=20).map(|n| holders.ask(&ids[n as usize - 1], call(n, fast))));
        let expected: Vec<_> = (1..=20).map(held).collect();
        assert_eq!(all.await, expected);
        assert_eq!(holders.ask("free", call(0, fast)).await, None);
        assert_eq!(most.load(Ordering::Relaxed), 1);
        // While one is slow, the others show what they know, and how old that is.
        sleep(2 * FRESH).await;
        let slow = holders.ask("slow", call(99, LIMIT - fast));
        let before = Instant::now();
        let others = async {
            let known = holders.ask("20", call(20, fast)).await;
            let free = holders.ask("free", call(0, fast)).await;
            let new = holders.ask("new", call(100, fast)).await;
            assert!(before.elapsed() < LIMIT - fast, "they do not wait for it");
            (known.unwrap(), free.unwrap(), new)
        };
        let (slow, (known, free, new)) = tokio::join!(slow, others);
        assert_eq!(slow, held(99));
        let age = known.age_ms.unwrap();
        assert!((2_000..3_000).contains(&age), "{age}");
        assert_eq!(known, row(20).aged(age));
        let left = |view: &HolderView| serde_json::to_value(view).unwrap()["lasts_ms"].clone();
        assert_eq!(left(&known), 10_000 - age);
        assert_eq!(
            (free.row, free.age_ms.is_some()),
            (HolderRow::Free {}, true)
        );
        assert_eq!(
            new,
            unknown("not known yet: the leases are asked about another lane")
        );
        assert_eq!(most.load(Ordering::Relaxed), 1);
        assert_eq!(holders.ask("new", call(100, fast)).await, held(100));
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_that_goes_leaves_the_question_to_the_next() {
        let holders = Holders::default();
        let goes = timeout(Duration::from_millis(10), holders.ask("a", pending())).await;
        assert!(goes.is_err());
        assert_eq!(holders.ask("a", async { Ok(None) }).await, None);
    }
}
