//! The thread that owns the journal.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keylane_disk::random;

use super::backoff::Backoff;
use super::core::Work;
use super::journal::{DiskError, Journal};
use super::shared::Shared;

/// How long removals wait for a commit to join. A delivered message that is not removed is
/// delivered again after a crash, so this bounds the duplicates.
const REMOVAL_LINGER: Duration = Duration::from_millis(20);

/// The pause between two attempts on a failing disk.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often the writer checks the file if there is nothing to write.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Writes until the spool has ended. Then the journal is closed, and its lock is free.
pub(super) fn write(shared: &Arc<Shared>, journal: impl Journal) {
    let _end = End(shared);
    // Dropped before the end is reported: then the directory is free.
    let mut journal = journal;
    let mut backoff = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
    let mut pause = None;
    while let Some(work) = shared.next_work(REMOVAL_LINGER, pause.take(), LOOK_EVERY) {
        if work.is_last {
            if let Err(error) = journal.reopen()
                && error.is_displaced()
            {
                tracing::error!(
                    target: "keylane_spool",
                    spool = %shared.name,
                    %error,
                    "the file of the spool is not in its place"
                );
                shared.with(|core| core.displaced(error));
            }
            break;
        }
        let has_worked = perform(shared, &mut journal, work);
        if has_worked {
            backoff.succeeded();
        } else {
            pause = Some(backoff.failed(random::dice()));
        }
    }
}

/// When the thread ends, for any reason, no caller may wait for it.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.with(|core| core.end());
    }
}

/// Returns false if it failed and should wait a moment.
fn perform(shared: &Shared, journal: &mut impl Journal, mut work: Work) -> bool {
    let has_changes = !work.appends.is_empty() || !work.removals.is_empty();
    let committed = journal.reopen().and_then(|()| match has_changes {
        true => journal.commit(&work.appends, &work.removals),
        false => Ok(()),
    });
    let is_readable = committed
        .as_ref()
        .map_or_else(DiskError::is_displaced, |()| true);
    let read = work.read.take_if(|_| is_readable);
    let has_worked = committed.is_ok();
    match committed {
        Ok(()) => shared.with(|core| core.committed(&work)),
        Err(error) => {
            tracing::error!(
                target: "keylane_spool",
                spool = %shared.name,
                %error,
                "the spool cannot write to its file, will retry"
            );
            let wall = SystemTime::now();
            shared.with(|core| core.commit_failed(work, &error, wall));
        }
    }
    let Some((range, bytes)) = read else {
        return has_worked;
    };
    // The displaced file is still open: this is the last chance to read it.
    match journal.read(range, bytes) {
        Ok(page) => {
            shared.with(|core| core.page(page));
            true
        }
        Err(error) => {
            tracing::error!(
                target: "keylane_spool",
                spool = %shared.name,
                %error,
                "the spool cannot read its file, will retry"
            );
            let wall = SystemTime::now();
            shared.with(|core| core.page_failed(&error, wall));
            false
        }
    }
}
