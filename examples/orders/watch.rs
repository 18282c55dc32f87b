//! What the page shows: figures by the second, the lanes, the dead letters.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use keylane::watching::{HotBy, HotKey};
use keylane_inbox::Inbox;
use keylane_inbox::error::StoreError;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::app::Shop;
use crate::ledger::now_us;
use crate::letters::Shown;
use crate::refusal::Refusal;
use crate::shop::Lanes;
use crate::why::Why;

/// For so many seconds the rates are remembered.
const SECONDS: usize = 120;

/// How many lanes a list shows, how many are looked at for it, and how many letters are shown.
const SHOWN: usize = 8;
const LOOKED_AT: usize = 256;
const LETTERS: usize = 50;

/// Watches a shop. Clones are the same watch.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Shared>);

struct Shared {
    started: Instant,
    /// Names the process: a page sees by it that there is a new one.
    life: u64,
    /// Relaxed, both of these: they are statistics.
    accepted: AtomicU64,
    waiting: AtomicU64,
    /// Accepted and done in each of the last seconds.
    rates: Mutex<VecDeque<[u64; 2]>>,
    state: tokio::sync::Mutex<Option<(Instant, Bytes)>>,
}

impl Watch {
    /// Watches until the inbox is closed.
    pub(crate) async fn start(inbox: &Inbox, lanes: &Lanes) -> Result<Self, StoreError> {
        let watch = Self(Arc::new(Shared {
            started: Instant::now(),
            life: now_us(),
            accepted: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            rates: Mutex::default(),
            state: tokio::sync::Mutex::default(),
        }));
        watch.count(inbox).await?;
        tokio::spawn({
            let (watch, inbox, lanes) = (watch.clone(), inbox.clone(), lanes.clone());
            async move {
                let mut second = interval(Duration::from_secs(1));
                second.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut before = [0, 0];
                while !lanes.is_closed() {
                    second.tick().await;
                    before = watch.tick(before, &lanes);
                    // A store that cannot be read now may be read in a second; the routes say why.
                    let _ = watch.count(&inbox).await;
                }
            }
        });
        Ok(watch)
    }

    /// An order was stored.
    pub(crate) fn accepted(&self) {
        self.0.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Orders that wait on the disk, as of a second ago.
    pub(crate) fn waiting(&self) -> u64 {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// All that the page shows, as JSON, no older than the call. However many ask, one looks at a time, and
    /// those who wait for it meanwhile share the next look.
    pub(crate) async fn state(&self, shop: &Shop) -> Result<Bytes, Refusal> {
        let asked = Instant::now();
        let mut state = self.0.state.lock().await;
        if let Some((looked, json)) = &*state
            && *looked >= asked
        {
            return Ok(json.clone());
        }
        let looked = Instant::now();
        let shown = self.look(shop).await?;
        let json: Bytes = serde_json::to_vec(&shown)
            .expect("strings and numbers are JSON")
            .into();
        *state = Some((looked, json.clone()));
        Ok(json)
    }

    fn tick(&self, before: [u64; 2], lanes: &Lanes) -> [u64; 2] {
        let shared = &self.0;
        let now = [shared.accepted.load(Ordering::Relaxed), lanes.stats().done];
        let mut rates = self.rates();
        if rates.len() == SECONDS {
            rates.pop_front();
        }
        rates.push_back([now[0] - before[0], now[1].saturating_sub(before[1])]);
        now
    }

    async fn count(&self, inbox: &Inbox) -> Result<(), StoreError> {
        let stats = inbox.stats().await?;
        self.0.waiting.store(stats.waiting, Ordering::Relaxed);
        Ok(())
    }

    fn rates_so_far(&self) -> Vec<[u64; 2]> {
        self.rates().iter().copied().collect()
    }

    fn rates(&self) -> MutexGuard<'_, VecDeque<[u64; 2]>> {
        self.0.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self, shop: &Shop) -> Result<State, Refusal> {
        let shared = &self.0;
        let stats = shop.lanes.stats();
        let stored = shop.inbox.stats().await?;
        let deepest = shop.lanes.hottest(SHOWN, HotBy::Depth).await;
        let by_age = shop.lanes.hottest(LOOKED_AT, HotBy::Age).await;
        let rows = |keys: Vec<HotKey<String>>| {
            let rows = keys.into_iter().map(|hot| Lane::of(hot, &shop.lanes));
            rows.collect::<Vec<_>>()
        };
        let mut oldest = rows(by_age);
        oldest.sort_by_key(|lane| std::cmp::Reverse(lane.age_ms));
        let all_stuck = oldest.iter().filter(|lane| lane.is_stuck);
        let stuck_lanes = all_stuck.clone().count();
        let stuck = all_stuck.take(SHOWN).cloned().collect();
        oldest.truncate(SHOWN);
        Ok(State {
            life: shared.life,
            up_ms: shared.started.elapsed().as_millis() as u64,
            accepted: shared.accepted.load(Ordering::Relaxed),
            done: stats.done,
            rates: self.rates_so_far(),
            waiting: stored.waiting,
            file_bytes: stored.file_bytes,
            in_flight: stats.in_flight,
            lanes: stats.lanes,
            backing_off: stats.backing_off,
            stuck_lanes,
            hottest: rows(deepest),
            oldest,
            stuck,
            dead_letters: stored.letters,
            letters: shop.letters(0, LETTERS).await?,
        })
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

#[derive(Debug, Serialize)]
struct State {
    life: u64,
    up_ms: u64,
    accepted: u64,
    done: u64,
    rates: Vec<[u64; 2]>,
    waiting: u64,
    file_bytes: u64,
    in_flight: usize,
    lanes: usize,
    backing_off: usize,
    stuck_lanes: usize,
    hottest: Vec<Lane>,
    oldest: Vec<Lane>,
    stuck: Vec<Lane>,
    dead_letters: u64,
    letters: Vec<Shown>,
}

/// One lane, as it is shown.
#[derive(Debug, Clone, Serialize)]
struct Lane {
    user: String,
    depth: usize,
    age_ms: u64,
    state: &'static str,
    why: String,
    #[serde(skip)]
    is_stuck: bool,
}

impl Lane {
    fn of(hot: HotKey<String>, lanes: &Lanes) -> Self {
        let Some(view) = lanes.inspect(&hot.key) else {
            return Self {
                user: hot.key,
                depth: hot.depth,
                age_ms: hot.age.as_millis() as u64,
                state: "moving",
                why: "done since it was looked at".to_owned(),
                is_stuck: false,
            };
        };
        let age = hot.age.max(view.head_age.unwrap_or_default());
        let age = age.max(view.oldest_waiting.unwrap_or_default());
        let why = Why::of(&view);
        Self {
            user: hot.key,
            depth: view.depth,
            age_ms: age.as_millis() as u64,
            state: why.state,
            why: why.sentence,
            is_stuck: why.is_stuck,
        }
    }
}
