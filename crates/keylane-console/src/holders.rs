//! Who has the lease of a key: a call to the store of the leases, so it is asked for only when a
//! viewer looks at the lane, and once a second for all viewers.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use keylane::error::BoxError;
use keylane::lease::LaneHolder;
use serde::Serialize;
use tokio::time::{Instant, timeout};

use crate::rows::{cut, ms};

/// How long an answer counts, an error too.
const FRESH: Duration = Duration::from_secs(1);

/// How long a call may take. The page of the lane waits for it.
const LIMIT: Duration = Duration::from_secs(1);

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
    },
    Unknown {
        why: String,
    },
}

/// The last answers, by the ids of the lanes.
#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<HashMap<String, Arc<Place>>>);

/// The last answer, and when it came. Locked by the one that asks: the others wait for its answer.
type Place = tokio::sync::Mutex<Option<(Instant, Option<HolderRow>)>>;

impl Holders {
    /// Returns the last answer, or asks anew.
    ///
    /// Cancel safety: if the future is dropped while it asks, the next viewer asks.
    pub(crate) async fn ask<F>(&self, id: &str, call: F) -> Option<HolderRow>
    where
        F: Future<Output = Result<Option<LaneHolder>, BoxError>>,
    {
        let place = self.place(id);
        let mut seen = place.lock().await;
        if let Some((at, answer)) = &*seen
            && at.elapsed() < FRESH
        {
            return answer.clone();
        }
        let answer = answer(call).await;
        *seen = Some((Instant::now(), answer.clone()));
        answer
    }

    fn place(&self, id: &str) -> Arc<Place> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|_, place| Arc::strong_count(place) > 1 || is_fresh(place));
        Arc::clone(places.entry(id.to_owned()).or_default())
    }
}

fn is_fresh(place: &Place) -> bool {
    let seen = place.try_lock();
    seen.is_ok_and(|seen| seen.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH))
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
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::future::{join_all, pending};
    use tokio::time::sleep;

    use super::*;

    fn held(token: u64) -> Option<HolderRow> {
        Some(HolderRow::of(LaneHolder::new("host-7", token, None)))
    }

    fn unknown(why: &str) -> Option<HolderRow> {
        let why = why.to_owned();
        Some(HolderRow::Unknown { why })
    }

    #[tokio::test(start_paused = true)]
    async fn many_viewers_cost_one_call_a_second_for_each_lane() {
        let (holders, calls) = (Holders::default(), AtomicU64::new(0));
        let call = async || {
            let token = calls.fetch_add(1, Ordering::Relaxed) + 1;
            sleep(Duration::from_millis(100)).await;
            Ok(Some(LaneHolder::new("host-7", token, None)))
        };
        let all = join_all((0..50).map(|_| holders.ask("a", call()))).await;
        assert!(all.iter().all(|answer| *answer == held(1)), "{all:?}");
        assert_eq!(holders.ask("b", call()).await, held(2));
        sleep(FRESH).await;
        assert_eq!(holders.ask("a", call()).await, held(3));
        // What is not looked at any more is forgotten.
        sleep(FRESH).await;
        drop(holders.ask("c", call()).await);
        assert_eq!(holders.0.lock().unwrap().len(), 1);
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
    async fn a_viewer_that_goes_leaves_the_question_to_the_next() {
        let holders = Holders::default();
        let goes = timeout(Duration::from_millis(10), holders.ask("a", pending())).await;
        assert!(goes.is_err());
        assert_eq!(holders.ask("a", async { Ok(None) }).await, None);
    }
}
