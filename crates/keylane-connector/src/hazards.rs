//! Settings with which a server may lose what it has confirmed.

use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::repeats::Repeats;

/// A setting with which a server may lose what it has confirmed.
///
/// Check them when a connection is made and every few minutes while it is in use, and
/// [`warn`](Self::warn) of what is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hazard {
    /// The name of the setting, as an operator knows it.
    pub setting: String,
    /// Its value.
    pub value: String,
    /// What may happen, and what to do.
    pub remedy: &'static str,
}

/// The first pause before the same setting is logged again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(86_400));

/// The settings of each server that were found.
static FOUND: LazyLock<Mutex<Repeats<(String, String)>>> =
    LazyLock::new(|| Mutex::new(Repeats::with_pauses(PAUSES.0, PAUSES.1)));

impl Hazard {
    /// Logs a warning: once for each setting and server, and again at growing intervals of 10
    /// minutes to a day.
    pub fn warn(&self, server: &str) {
        let kind = (server.to_owned(), self.setting.clone());
        if lock(&FOUND).hear(kind, Instant::now()).is_some() {
            let Self {
                setting,
                value,
                remedy,
            } = self;
            tracing::warn!(target: "keylane", server, setting, value, "{remedy}");
        }
    }
}
