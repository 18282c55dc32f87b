//! Spans and events. Keys appear as their hash unless the user asked for more.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use keylane_rt::cut;
use tracing::Span;

/// How a key is shown: as text by choice, else as its hash.
pub(crate) type ShowKey<K> = fn(&K, &mut fmt::Formatter<'_>) -> fmt::Result;

/// A key, as spans and events show it.
pub(crate) struct Shown<'a, K> {
    pub(crate) key: Option<&'a K>,
    pub(crate) hash: u64,
    pub(crate) show: Option<ShowKey<K>>,
}

/// Most characters of a key or an error in a span or event.
const LONGEST: usize = 64;

impl<K> fmt::Display for Shown<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.key, self.show) {
            (None, _) => f.write_str("-"),
            (Some(key), Some(show)) => f.write_str(&cut(text_of(key, show), LONGEST)),
            (Some(_), None) => write!(f, "#{:016x}", self.hash),
        }
    }
}

/// A key by its own `Debug`, which may panic: a runner must not go down over a line in a log.
fn text_of<K>(key: &K, show: ShowKey<K>) -> String {
    let text = || std::fmt::from_fn(|f| show(key, f)).to_string();
    catch_unwind(AssertUnwindSafe(text)).unwrap_or_else(|panic| {
        // Its drop may panic as well.
        std::mem::forget(panic);
        "a key whose `Debug` panics".to_owned()
    })
}

/// Whether spans of attempts are looked at.
#[inline]
pub(crate) fn is_enabled() -> bool {
    tracing::enabled!(target: "keylane", tracing::Level::INFO)
}

/// The span of one attempt, or `None` without a subscriber; then nothing is computed.
pub(crate) fn span<'a, K: 'a>(
    describe: impl FnOnce() -> (Shown<'a, K>, u32, Duration),
) -> Option<Span> {
    if !is_enabled() {
        return None;
    }
    let (key, attempt, wait) = describe();
    let span = tracing::info_span!(
        target: "keylane",
        "keylane.message",
        %key,
        attempt,
        wait_us = wait.as_micros() as u64,
    );
    (!span.is_disabled()).then_some(span)
}
