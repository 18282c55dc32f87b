//! Limits the lines that a hostile client can cause: one of each kind in ten seconds.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A line of one kind is written no more often.
const EVERY: Duration = Duration::from_secs(10);

/// When lines were last written, by their kinds, and how many were not since then.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<HashMap<&'static str, (Instant, u64)>>);

impl Reports {
    /// How many lines of this kind were left out since the last one, if this one is to be written.
    pub(crate) fn admit(&self, kind: &'static str) -> Option<u64> {
        let now = Instant::now();
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kinds.get_mut(kind) {
            Some((last, missed)) if now - *last < EVERY => {
                *missed += 1;
                None
            }
            _ => {
                let was = kinds.insert(kind, (now, 0));
                Some(was.map_or(0, |(_, missed)| missed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_kind_has_a_line_in_ten_seconds() {
        let reports = Reports::default();
        assert_eq!(reports.admit("no_header"), Some(0));
        assert_eq!(reports.admit("no_header"), None);
        assert_eq!(reports.admit("no_header"), None);
        assert_eq!(reports.admit("sign_in"), Some(0));
        tokio::time::advance(EVERY).await;
        assert_eq!(reports.admit("no_header"), Some(2));
        assert_eq!(reports.admit("no_header"), None);
    }
}
