//! The thread that owns the write side.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use keylane_disk::{Displaced, Displacement, Opener};
use redb::Database;
use tokio::sync::watch;

use super::apply::{Applied, Memory};
use super::compaction::Compaction;
use super::database::{self, Lasting};
use super::fault::{Fault, Wrapped, guarded};
use super::group::{Groups, Next};
use super::identity::Identity;
use super::op::{Alone, Op};
use super::settings::{Settings, SyncMode};
use super::shared::{Counts, Shared, State};
use super::tables::Totals;
use crate::attempts::{Marks, Stamp};
use crate::error::StoreError;
use crate::record::to_millis;

/// How long to wait before the next try to open a broken database.
const RETRY: Duration = Duration::from_millis(250);

/// How often the writer checks that the files are in their place, if no call comes.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Writer {
    pub(super) groups: Groups,
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Settings,
    pub(super) opener: Opener,
    pub(super) marks: Option<Arc<Marks>>,
    /// Checks that the files are in their place, and keeps other processes out until the thread
    /// ends. `None` for bytes that are not in a directory.
    pub(super) identity: Option<Identity>,
    /// When to check next.
    pub(super) look_at: Instant,
    /// The totals of the last commit.
    pub(super) totals: Totals,
    /// The commits that are certainly durable.
    pub(super) durable: Stamp,
    /// The number that this opening drew.
    pub(super) history: u64,
    /// The stamp in the file of starts.
    pub(super) stamped: Stamp,
    /// Since when there are commits that are not durable.
    pub(super) unsynced: Option<Instant>,
    /// When to try again, if the database could not be opened.
    pub(super) retry_at: Option<Instant>,
    pub(super) compaction: Compaction,
    pub(super) ended: watch::Sender<Option<Result<(), StoreError>>>,
}

impl Writer {
    /// Runs until the store is closed, or its last handle is gone.
    pub(super) fn run(mut self) {
        loop {
            match self.groups.next(self.patience()) {
                Next::Commit(group) => self.commit(group),
                Next::TimeOut => {}
                Next::Alone(Alone::Compact(reply)) => {
                    let compacted = self.compact();
                    let _ = reply.send(compacted);
                }
                Next::Alone(Alone::Mend) => self.mend(),
                Next::Alone(Alone::Close) | Next::End => break,
            }
            self.attend();
        }
        let closed = self.close();
        // Other processes may open the inbox as soon as the caller knows that it is closed: so all
        // files are closed first, and the lock with them.
        let ended = self.ended.clone();
        drop(self);
        ended.send_replace(Some(closed));
    }

    /// Returns how long the writer may sleep when no call comes.
    fn patience(&self) -> Option<Duration> {
        let now = Instant::now();
        let look = self.identity.as_ref().map(|_| self.look_at);
        let due = [self.sync_due(), self.retry_at, self.compaction.due(), look];
        let due = due.into_iter().flatten().min();
        due.map(|due| due.saturating_duration_since(now))
    }

    fn sync_due(&self) -> Option<Instant> {
        match self.settings.sync {
            SyncMode::LosesNothing => None,
            SyncMode::LosesUpTo(time) => self.unsynced.and_then(|since| since.checked_add(time)),
        }
    }

    /// Does due work that no caller waits for.
    fn attend(&mut self) {
        self.stamp();
        let now = Instant::now();
        if self.retry_at.is_some_and(|at| at <= now) {
            self.open();
        }
        if self.look_at <= now {
            self.look_at = now + LOOK_EVERY;
            if let Err(displaced) = self.look() {
                self.let_go(displaced);
            }
        }
        if self.sync_due().is_some_and(|due| due <= now) {
            // No call waits for the answer; the next durable call gets the error.
            let _ = self.sync();
        }
        let (file, live) = (self.shared.watch.length(), self.totals.live_bytes());
        if self.retry_at.is_none() && self.compaction.look(Instant::now(), file, live) {
            let _ = self.compact();
        }
    }

    /// Runs one transaction for all calls, and then answers them.
    fn commit(&mut self, mut group: Vec<Op>) {
        if let Some(error) = self.unavailable() {
            group.into_iter().for_each(|op| op.refuse(error.clone()));
            return;
        }
        match self.attempt_in_place(&mut group) {
            Ok(()) => {
                self.publish(&group);
                group.into_iter().for_each(Op::confirm);
            }
            Err(fault) => {
                let error = fault.not_committed(&self.shared.place);
                Counts::add(&self.shared.counts.failed_commits);
                tracing::error!(
                    place = %self.shared.place, %error,
                    "a commit failed, will open the file again"
                );
                // First: a caller that gets the error and tries again must not be refused.
                match fault {
                    Fault::Displaced(displaced) => self.let_go(displaced),
                    fault => self.reopen(fault),
                }
                group.into_iter().for_each(|op| op.refuse(error.clone()));
            }
        }
    }

    /// Commits the calls if the files are in their place before and after: an answer must be about
    /// a file that the next process finds.
    fn attempt_in_place(&mut self, group: &mut [Op]) -> Result<(), Fault> {
        if let Some(identity) = &self.identity {
            identity.look_at_bytes()?;
        }
        self.attempt(group)?;
        if let Some(identity) = &self.identity {
            identity.look_at_names()?;
        }
        Ok(())
    }

    fn attempt(&mut self, group: &mut [Op]) -> Result<(), Fault> {
        let lasting = match self.settings.sync {
            SyncMode::LosesNothing => Lasting::Durable,
            SyncMode::LosesUpTo(_) => Lasting::Later,
        };
        if lasting == Lasting::Durable {
            self.sync_marks()?;
        }
        let now_ms = to_millis((self.settings.clock)());
        let memory = Memory {
            window_ms: u64::try_from(self.settings.remember_for.as_millis()).unwrap_or(u64::MAX),
            most: self.settings.remember_most,
        };
        let (totals, history) = (self.totals, self.history);
        let committed = self.write(lasting, |transaction| {
            let mut applied = Applied::new(transaction, totals, history, now_ms, memory)?;
            for op in group.iter_mut() {
                apply(op, &mut applied)?;
            }
            applied.finish()
        })?;
        if let Some(totals) = committed {
            self.totals = totals;
            self.committed(lasting);
        }
        Ok(())
    }

    /// Runs one transaction. Without totals there is nothing to commit.
    fn write(
        &self,
        lasting: Lasting,
        work: impl FnOnce(&redb::WriteTransaction) -> Result<Option<Totals>, Wrapped>,
    ) -> Result<Option<Totals>, Fault> {
        let state = self.shared.state();
        let State::Open(database) = &*state else {
            return Err(Fault::Refused("it is not open".into()));
        };
        guarded(|| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(lasting.into())?;
            transaction.set_quick_repair(self.settings.fast_recovery);
            let totals = work(&transaction)?;
            match totals {
                Some(_) => transaction.commit()?,
                None => transaction.abort()?,
            }
            Ok(totals)
        })
    }

    fn committed(&mut self, lasting: Lasting) {
        Counts::add(&self.shared.counts.commits);
        match lasting {
            Lasting::Later => {
                self.unsynced.get_or_insert_with(Instant::now);
            }
            Lasting::Durable => {
                self.unsynced = None;
                self.durable = self.totals.stamp();
            }
        }
    }

    fn look(&self) -> Result<(), Displaced> {
        self.identity.as_ref().map_or(Ok(()), Identity::look)
    }

    /// Stops writing to files that are not in their place.
    fn let_go(&mut self, displaced: Displaced) {
        let is_open = matches!(&*self.shared.state(), State::Open(_));
        if is_open {
            let (path, how) = (displaced.path.display(), displaced.how);
            tracing::error!(
                place = %path, reason = %how,
                "a file of the inbox is not in its place: the inbox stops reading and writing"
            );
            self.seal(&displaced);
            // The file may only have been moved, and may come back.
            let _ = self.sync();
            self.reopen(displaced.into());
        }
    }

    /// Protects the bytes of another program: they are not overwritten, not even by the close of
    /// the database.
    fn seal(&self, displaced: &Displaced) {
        if displaced.how == Displacement::Overwritten {
            self.shared.watch.seal();
        }
    }

    /// Tells readers the new end of the store.
    fn publish(&self, group: &[Op]) {
        let redriven = group.iter().filter_map(|op| match op {
            Op::Redrive(letters) => Some(&letters.found[..]),
            _ => None,
        });
        let mut redrives = 0;
        for sequences in redriven {
            self.shared.redriven().extend(sequences);
            redrives += sequences.len() as u64;
        }
        let sequence = self.totals.next_sequence - 1;
        self.shared.tail.send_if_modified(|tail| {
            let is_new = tail.sequence != sequence || redrives > 0;
            tail.sequence = sequence;
            tail.redrives += redrives;
            is_new
        });
    }

    /// Makes all commits durable.
    fn sync(&mut self) -> Result<(), Fault> {
        if self.unsynced.is_none() {
            return Ok(());
        }
        let mut totals = self.totals;
        totals.commits += 1;
        totals = totals.under(self.history);
        let synced = self.sync_marks().and_then(|()| {
            self.write(Lasting::Durable, |transaction| {
                totals.write(Some(self.totals), transaction)?;
                Ok(Some(totals))
            })
        });
        match synced {
            Ok(_) => {
                self.totals = totals;
                self.committed(Lasting::Durable);
                Ok(())
            }
            Err(fault) => {
                Counts::add(&self.shared.counts.failed_commits);
                tracing::error!(
                    error = fault.reason(),
                    "accepted messages could not be synced, will open the file again"
                );
                let told = Fault::Refused(fault.reason());
                self.reopen(fault);
                Err(told)
            }
        }
    }

    fn sync_marks(&self) -> Result<(), Fault> {
        let synced = self.marks.as_ref().map_or(Ok(()), |marks| marks.sync());
        synced.map_err(Fault::Io)
    }

    /// Notes the last durable commit in the file of starts. The note only helps to detect an old
    /// database: if it fails, nothing is lost.
    fn stamp(&mut self) {
        if self.stamped == self.durable {
            return;
        }
        self.stamped = self.durable;
        if let Some(Err(error)) = self.marks.as_ref().map(|marks| marks.stamp(self.durable)) {
            tracing::warn!(%error, "the last commit could not be noted in the file of start marks");
        }
    }

    /// Returns the reason why nothing can be written now, if there is one.
    fn unavailable(&mut self) -> Option<StoreError> {
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            self.open();
        }
        match &*self.shared.state() {
            State::Open(_) => None,
            State::Broken(fault) => Some(fault.unread(&self.shared.place)),
            State::Closed => Some(StoreError::Closed),
        }
    }

    /// Reopens the database after a failed read: the next read may succeed, but not on this
    /// database.
    fn mend(&mut self) {
        if self.shared.read_failed() {
            self.reopen(Fault::Refused("a read failed".into()));
        }
    }

    /// Closes the database, which refuses everything after a failure, and opens it again.
    fn reopen(&mut self, fault: Fault) {
        let old = self.shared.replace(State::Broken(fault));
        self.shared.read_failed.store(false, Ordering::Relaxed);
        // It may panic over its half-done work.
        let _ = guarded(|| {
            drop(old);
            Ok(())
        });
        self.open();
    }

    fn open(&mut self) {
        // The path may name another file.
        let in_place = self.look().map_err(Fault::from);
        let opened = in_place
            .and_then(|()| database::open(&self.opener, &self.shared.watch, &self.settings));
        let opened = opened.and_then(|(database, totals)| self.check(database, totals));
        match opened {
            Ok((database, totals)) => {
                self.totals = totals;
                self.durable = totals.stamp();
                self.unsynced = None;
                self.retry_at = None;
                self.shared.replace(State::Open(database));
                tracing::info!(
                    place = %self.shared.place,
                    "the inbox is open again after a failure"
                );
                self.publish(&[]);
            }
            Err(fault) => {
                let reason = fault.reason();
                let wait = match &fault {
                    Fault::Displaced(_) => LOOK_EVERY,
                    _ => RETRY,
                };
                self.retry_at = Some(Instant::now() + wait);
                let before = self.shared.replace(State::Broken(fault));
                // Logged once, and not with every try.
                if !matches!(before, State::Broken(before) if before.reason() == reason) {
                    let place = &self.shared.place;
                    tracing::error!(
                        %place, error = reason,
                        "the inbox could not be opened again, will retry"
                    );
                }
            }
        }
    }

    /// Checks that every confirmed commit is there.
    fn check(&self, database: Database, totals: Totals) -> Result<(Database, Totals), Fault> {
        match self.durable.commits.checked_sub(totals.commits) {
            None | Some(0) => Ok((database, totals)),
            Some(missing) => Err(Fault::Damaged(format!(
                "its last {missing} commits, which were confirmed, are gone"
            ))),
        }
    }

    fn compact(&mut self) -> Result<u64, StoreError> {
        if let Some(error) = self.unavailable() {
            return Err(error);
        }
        let live = self.totals.live_bytes();
        // It makes commits durable, and the marks and the stamp must be durable before them.
        let synced = self.sync_marks();
        match synced.and_then(|()| self.compaction.run(&self.shared, live)) {
            Ok(length) => {
                // It has committed everything that was not durable.
                self.unsynced = None;
                Ok(length)
            }
            Err(fault) => {
                let error = fault.unread(&self.shared.place);
                tracing::error!(%error, "the file could not be compacted, will open it again");
                self.reopen(fault);
                Err(error)
            }
        }
    }

    fn close(&mut self) -> Result<(), StoreError> {
        let place = self.shared.place.clone();
        let unconfirmed = |fault: Fault| fault.not_committed(&place);
        let looked = self.look();
        if let Err(displaced) = &looked {
            tracing::error!(
                place = %displaced.path.display(), reason = %displaced.how,
                "the inbox was closed while a file was not in its place"
            );
            self.seal(displaced);
        }
        let in_place = looked.map_err(|displaced| unconfirmed(displaced.into()));
        let synced = self.sync().map_err(unconfirmed);
        self.stamp();
        let marks = self.sync_marks().map_err(unconfirmed);
        let closed = match self.shared.replace(State::Closed) {
            State::Open(database) => {
                let closed = guarded(|| Ok(database.close()?));
                closed.map_err(unconfirmed)
            }
            State::Broken(fault) => Err(fault.unread(&place)),
            State::Closed => Ok(()),
        };
        in_place.and(synced).and(closed).and(marks)
    }
}

fn apply(op: &mut Op, applied: &mut Applied<'_>) -> Result<(), Wrapped> {
    match op {
        Op::Accept {
            messages, accepted, ..
        } => {
            for message in messages {
                accepted.push(applied.accept(message)?);
            }
        }
        Op::Settle { settled, .. } => {
            for settled in settled {
                applied.settle(settled)?;
            }
        }
        Op::Redrive(letters) => {
            for sequence in &letters.sequences {
                if applied.redrive(*sequence)? {
                    letters.found.push(*sequence);
                }
            }
        }
        Op::Purge(letters) => {
            for sequence in &letters.sequences {
                if applied.purge(*sequence)? {
                    letters.found.push(*sequence);
                }
            }
        }
        Op::RecordVersion { key, version, .. } => applied.record_version(key, *version)?,
        Op::Alone(_) => unreachable!("what runs alone is in no group"),
    }
    Ok(())
}
