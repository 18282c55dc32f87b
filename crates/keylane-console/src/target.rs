//! One dispatcher of any types, as the console needs it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use keylane::consume::IntakeWatch;
use keylane::error::LaneError;
use keylane::watching::{HotBy, HotKey, LaneView};
use keylane::{Dispatcher, async_trait};

use crate::action::Action;
use crate::detail::{Detail, FailedRow, MOST_FAILED, MOST_MESSAGES, MessageRow};
use crate::holders::Holders;
use crate::registry::Registry;
use crate::rows::{LaneName, Row, cut, ms};
use crate::summary::Summary;
use crate::times::{Percentiles, Window};
use crate::view::View;

/// How many lanes are asked for by each measure.
const BY_AGE: usize = 160;
const BY_DEPTH: usize = 50;
const BY_BUSY: usize = 30;

/// Most lanes of each of these kinds that are not among those.
const FAILING: usize = 60;
const PAUSED: usize = 60;
const HALTED: usize = 60;

/// Lanes looked at before others may run.
const BATCH: usize = 32;

/// A dispatcher without its types.
#[async_trait]
pub(crate) trait Target: Send + Sync {
    fn name(&self) -> &str;

    fn summary(&self) -> Summary;

    /// How long messages have waited, and attempts have lasted, in the last looks. From the first
    /// look on they are measured, until [`rest`](Self::rest).
    fn percentiles(&self) -> Percentiles;

    /// Nothing is measured any more.
    fn rest(&self);

    /// The hottest, the oldest, the busiest, the halted, the failing and the paused lanes. No walk
    /// over all lanes.
    async fn lanes(&self) -> Vec<Row>;

    /// The lane of a key; `None` if the text is no key.
    fn find(&self, text: &str) -> Option<Row>;

    /// The lane of an id; `None` if it was not shown lately.
    async fn lane(&self, id: &str) -> Option<Detail>;

    /// Which lanes hold an intake back at these positions, by the position.
    async fn holding_back(
        &self,
        intake: &IntakeWatch,
        fronts: &HashSet<&str>,
    ) -> Vec<(String, LaneName)>;

    /// Whether a text can become a message.
    fn decodes(&self) -> bool;

    /// The text of the key of an id; `None` if it was not shown lately.
    fn key(&self, id: &str) -> Option<String>;

    /// Acts on the lane of an id. `message` is the text of the new one, for a replacement.
    fn act(&self, id: &str, action: Action, message: &str) -> Result<Acted, NotActed>;
}

/// What an action did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Acted {
    /// Messages that were purged.
    pub(crate) purged: Option<usize>,
    /// Messages that were replaced.
    pub(crate) replaced: Option<usize>,
}

impl Acted {
    /// Messages that are lost by it.
    pub(crate) fn count(self) -> Option<usize> {
        self.purged.or(self.replaced)
    }
}

/// Why an action did nothing.
#[derive(Debug, Clone)]
pub(crate) enum NotActed {
    UnknownId,
    /// The lane has nothing to decide.
    Nothing,
    InFlight,
    /// The text is no message, or not one for this lane: why.
    NoMessage(String),
    /// The action is not one on a lane.
    Unfit,
    /// The user's code has panicked.
    Panicked,
}

pub(crate) struct Watched<K, M, O, E> {
    pub(crate) name: String,
    pub(crate) dispatcher: Dispatcher<K, M, O, E>,
    pub(crate) text: View<K, M>,
    pub(crate) window: Mutex<Window>,
    pub(crate) shown: Mutex<Registry<K>>,
    pub(crate) holders: Holders,
}

impl<K, M, O, E> Watched<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    pub(crate) fn new(name: &str, dispatcher: &Dispatcher<K, M, O, E>, text: View<K, M>) -> Self {
        Self {
            name: name.to_owned(),
            dispatcher: dispatcher.clone(),
            text,
            window: Mutex::default(),
            shown: Mutex::new(Registry::new()),
            holders: Holders::default(),
        }
    }

    fn text_of(&self, key: &K) -> String {
        // The user's code: its panic must not end the page for all.
        let text = catch_unwind(AssertUnwindSafe(|| (self.text.show)(key)));
        text.unwrap_or_else(|_| "(a key whose text panics)".to_owned())
    }

    fn id_of(&self, key: &K) -> String {
        lock(&self.shown).id(key)
    }

    fn key_of(&self, id: &str) -> Option<K> {
        lock(&self.shown).key(id).cloned()
    }

    fn name_of(&self, key: &K) -> LaneName {
        let text = self.text_of(key);
        LaneName {
            dispatcher: self.name.clone(),
            id: self.id_of(key),
            key: cut(&text),
            key_chars: text.chars().count(),
        }
    }

    fn row(&self, key: &K, view: Option<LaneView>) -> Row {
        let (id, text) = (self.id_of(key), self.text_of(key));
        match view {
            Some(view) => Row::of(id, &text, view),
            None => Row::empty(id, &text),
        }
    }

    /// The message of a text, by the user's code.
    fn message_of(&self, text: &str) -> Result<M, String> {
        let decode = self.text.decode.as_ref();
        let decode = decode.ok_or("this dispatcher has no `View::decode`")?;
        let decoded = catch_unwind(AssertUnwindSafe(|| decode(text)));
        let decoded = decoded.map_err(|_| "decoding it has panicked")?;
        decoded.map_err(|error| error.to_string())
    }

    /// The row of a key that a query has found; `None` if its lane is gone by now.
    fn hot_row(&self, hot: &HotKey<K>) -> Option<Row> {
        let view = self.dispatcher.inspect(&hot.key)?;
        let mut row = self.row(&hot.key, Some(view));
        row.age_ms = row.age_ms.max(ms(hot.age));
        row.busy_ms = ms(hot.busy);
        Some(row)
    }
}

#[async_trait]
impl<K, M, O, E> Target for Watched<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> Summary {
        let dispatcher = &self.dispatcher;
        Summary::of(&self.name, dispatcher.is_closed(), &dispatcher.stats())
    }

    fn percentiles(&self) -> Percentiles {
        lock(&self.window).look(|| self.dispatcher.measure())
    }

    fn rest(&self) {
        lock(&self.window).rest();
    }

    async fn lanes(&self) -> Vec<Row> {
        let mut found = HashMap::new();
        for (most, by) in [
            (BY_AGE, HotBy::Age),
            (BY_DEPTH, HotBy::Depth),
            (BY_BUSY, HotBy::Busy),
        ] {
            for hot in self.dispatcher.hottest(most, by).await {
                found.insert(hot.key.clone(), hot);
            }
        }
        let mut rows = Vec::with_capacity(found.len());
        for (looked, hot) in found.values().enumerate() {
            if looked % BATCH == BATCH - 1 {
                tokio::task::yield_now().await;
            }
            rows.extend(self.hot_row(hot));
        }
        let mut others = self.dispatcher.halted(HALTED).await;
        others.extend(self.dispatcher.failing(FAILING).await);
        others.extend(self.dispatcher.paused(PAUSED).await);
        let mut listed: HashSet<K> = found.into_keys().collect();
        for key in others {
            if !listed.contains(&key) {
                rows.push(self.row(&key, self.dispatcher.inspect(&key)));
                listed.insert(key);
            }
        }
        rows.sort_unstable_by(|a, b| (b.age_ms, &a.id).cmp(&(a.age_ms, &b.id)));
        rows
    }

    fn find(&self, text: &str) -> Option<Row> {
        let parsed = catch_unwind(AssertUnwindSafe(|| (self.text.parse)(text)));
        let key = parsed.ok().flatten()?;
        Some(self.row(&key, self.dispatcher.inspect(&key)))
    }

    async fn lane(&self, id: &str) -> Option<Detail> {
        let key = self.key_of(id)?;
        let lane = self.dispatcher.lane(&key);
        let holder = async {
            let view = lane.inspect();
            match view.is_some_and(|view| view.lease.is_some()) {
                true => None,
                false => self.holders.ask(id, lane.lease_holder()).await,
            }
        };
        let (messages, holder) = tokio::join!(lane.messages(MOST_MESSAGES), holder);
        let (failed, now) = (lane.failed(MOST_FAILED), tokio::time::Instant::now());
        let row = self.row(&key, lane.inspect());
        Some(Detail {
            // It may have been granted meanwhile.
            holder: holder.filter(|_| row.lease.is_none()),
            row,
            messages: messages.into_iter().map(MessageRow::of).collect(),
            holds_back: Vec::new(),
            more_held: 0,
            failed: failed
                .into_iter()
                .map(|failed| FailedRow::of(failed, now))
                .collect(),
        })
    }

    async fn holding_back(
        &self,
        intake: &IntakeWatch,
        fronts: &HashSet<&str>,
    ) -> Vec<(String, LaneName)> {
        let holding = self.dispatcher.holding_back(intake).await;
        let holding = holding.into_iter();
        let holding = holding.filter(|it| fronts.contains(&*it.origin.position));
        let named = holding.filter_map(|it| {
            // The user's code, as above.
            let named = catch_unwind(AssertUnwindSafe(|| self.name_of(&it.key)));
            Some((it.origin.position, named.ok()?))
        });
        named.collect()
    }

    fn decodes(&self) -> bool {
        self.text.decode.is_some()
    }

    fn key(&self, id: &str) -> Option<String> {
        // The key is not cloned: that is the user's code too.
        let shown = lock(&self.shown);
        shown.key(id).map(|key| self.text_of(key))
    }

    fn act(&self, id: &str, action: Action, message: &str) -> Result<Acted, NotActed> {
        let key = self.key_of(id).ok_or(NotActed::UnknownId)?;
        let lane = self.dispatcher.lane(&key);
        let mut acted = Acted::default();
        let done = match action {
            Action::Pause => {
                lane.pause();
                Ok(())
            }
            Action::Purge => {
                acted.purged = Some(lane.purge());
                Ok(())
            }
            Action::Resume => lane.resume(),
            Action::RetryNow => lane.retry_now(),
            Action::Skip => lane.skip(),
            Action::Replace => match self.message_of(message) {
                Ok(message) => {
                    acted.replaced = Some(1);
                    lane.replace(message).map(drop).map_err(forget)
                }
                Err(why) => return Err(NotActed::NoMessage(why)),
            },
            Action::RedriveLetters | Action::PurgeLetters => return Err(NotActed::Unfit),
        };
        match done {
            Ok(()) => Ok(acted),
            Err(LaneError::InFlight(())) => Err(NotActed::InFlight),
            Err(why @ (LaneError::OtherKey(()) | LaneError::TooLarge(()))) => {
                Err(NotActed::NoMessage(why.to_string()))
            }
            Err(_) => Err(NotActed::Nothing),
        }
    }
}

fn forget<M>(why: LaneError<M>) -> LaneError {
    match why {
        LaneError::NotHalted(_) => LaneError::NotHalted(()),
        LaneError::InFlight(_) => LaneError::InFlight(()),
        LaneError::OtherKey(_) => LaneError::OtherKey(()),
        LaneError::TooLarge(_) => LaneError::TooLarge(()),
        // A later version knows others.
        _ => LaneError::NotHalted(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
