//! Runs of offsets: sorted ranges that do not touch.

use std::ops::Range;

/// Joins the ranges that touch. They are sorted by where they start.
pub(super) fn joined(runs: impl Iterator<Item = Range<u64>>) -> impl Iterator<Item = Range<u64>> {
    let mut runs = runs.filter(|run| !run.is_empty()).peekable();
    std::iter::from_fn(move || {
        let mut run = runs.next()?;
        while let Some(next) = runs.next_if(|next| next.start <= run.end) {
            run.end = run.end.max(next.end);
        }
        Some(run)
    })
}
