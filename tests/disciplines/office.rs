//! Who sends jobs, keeps their receipts, and judges what became of them.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use keylane::{Builder, Coalesce, Context, Dispatcher, Receipt, ReceiptError, Report};
use keylane_testkit::{Drained, Evidence, History, Id, Key, Rule, Script, ScriptError, Scripted};
use tokio::time::Instant;

use crate::rig::{assert_empty, assert_no_engine_panics, mails, within};

/// What is sent: numbered by its office, with a place among the messages of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) key: Key,
    pub(crate) id: Id,
    pub(crate) version: u64,
    /// The ids that were merged into it, in their order.
    pub(crate) parts: Vec<Id>,
}

pub(crate) type Jobs = Dispatcher<Key, Job, Id, ScriptError>;
pub(crate) type Answer = Result<Id, ReceiptError<Job, ScriptError>>;
type JobReceipt = Receipt<Job, Id, ScriptError>;

/// A dispatcher of jobs, all settings at their defaults.
pub(crate) fn jobs()
-> Builder<Key, Job, ScriptError, impl Fn(&Job) -> Option<Key> + Send + Sync + 'static> {
    // For its panic hook.
    drop(mails());
    Dispatcher::key_by_opt(|job: &Job| Some(job.key))
}

/// The script as a handler.
pub(crate) fn scripted(
    script: Script,
) -> impl Fn(Context<Key>, Job) -> Scripted + Send + Sync + 'static {
    move |ctx, job| script.run(job.key, job.id, ctx.attempt())
}

/// Merges, keeps the newer id, and writes down which message was merged into which.
pub(crate) fn merging(history: &History) -> Coalesce<Job> {
    let history = history.clone();
    Coalesce::merge(move |waiting: &Job, new: &Job| {
        history.coalesced(waiting.id, new.id);
        let mut parts = waiting.parts.clone();
        parts.push(waiting.id);
        parts.extend(&new.parts);
        Job {
            parts,
            ..new.clone()
        }
    })
}

/// Sends jobs and keeps their receipts.
#[derive(Clone)]
pub(crate) struct Office {
    pub(crate) history: History,
    pub(crate) jobs: Jobs,
    last_id: Arc<AtomicU64>,
    versions: Arc<Mutex<BTreeMap<Key, u64>>>,
    sent: Arc<Mutex<Sent>>,
}

#[derive(Default)]
struct Sent {
    receipts: BTreeMap<Id, JobReceipt>,
    keys: BTreeMap<Id, Key>,
}

impl Office {
    pub(crate) fn new(history: &History, jobs: Jobs) -> Self {
        Self {
            history: history.clone(),
            jobs,
            last_id: Arc::default(),
            versions: Arc::default(),
            sent: Arc::default(),
        }
    }

    /// The next job of a key, of the next version.
    pub(crate) async fn submit(&self, key: Key) -> Id {
        let version = {
            let mut versions = self.versions.lock().unwrap();
            let version = versions.entry(key).or_default();
            *version += 1;
            *version
        };
        self.submit_version(key, version).await
    }

    /// The next job of a key, of this version.
    pub(crate) async fn submit_version(&self, key: Key, version: u64) -> Id {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let job = Job {
            key,
            id,
            version,
            parts: Vec::new(),
        };
        let sending = self.history.sending(key, version, id);
        let receipt = self.jobs.submit(job).await.expect("the office is open");
        sending.ok();
        let mut sent = self.sent.lock().unwrap();
        sent.receipts.insert(id, receipt);
        sent.keys.insert(id, key);
        id
    }

    pub(crate) async fn submit_versions(&self, key: Key, versions: impl IntoIterator<Item = u64>) {
        for version in versions {
            self.submit_version(key, version).await;
        }
    }

    pub(crate) async fn submit_all(&self, key: Key, count: usize) {
        for _ in 0..count {
            self.submit(key).await;
        }
    }

    /// The answers that have come, in the order of the ids; the others are still waited for.
    pub(crate) fn answered(&self) -> BTreeMap<Id, Answer> {
        let mut sent = self.sent.lock().unwrap();
        let mut answers = BTreeMap::new();
        sent.receipts.retain(|id, receipt| {
            let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
            // There may be more of them than one task may poll in a row.
            let mut receipt = tokio::task::unconstrained(receipt);
            match std::pin::Pin::new(&mut receipt).poll(cx) {
                std::task::Poll::Ready(answer) => {
                    answers.insert(*id, answer);
                    false
                }
                std::task::Poll::Pending => true,
            }
        });
        answers
    }

    /// The handled ids, in the order of their ends.
    pub(crate) fn handled(&self) -> Vec<Id> {
        let records = self.history.records();
        let ends = records.iter().filter_map(|record| match record.event {
            keylane_testkit::Event::End {
                id,
                outcome: keylane_testkit::Outcome::Ok,
                ..
            } => Some(id),
            _ => None,
        });
        ends.collect()
    }

    /// The starts, with their attempts.
    pub(crate) fn started(&self) -> Vec<(Id, u32)> {
        let records = self.history.records();
        let starts = records.iter().filter_map(|record| match record.event {
            keylane_testkit::Event::Start { id, attempt, .. } => Some((id, attempt)),
            _ => None,
        });
        starts.collect()
    }

    /// Drains and judges. Returns the report and what the receipts said.
    pub(crate) async fn finish(self, evidence: Evidence) -> (Report<Key, Job>, Told) {
        let report = within(async { self.jobs.drain().await }).await;
        self.judge(report, evidence)
    }

    /// Judges a life that has ended with this report, by its history and by its receipts.
    #[track_caller]
    pub(crate) fn judge(
        self,
        report: Report<Key, Job>,
        mut evidence: Evidence,
    ) -> (Report<Key, Job>, Told) {
        let position = self.history.position();
        let answers = self.answered();
        let waiting = self.sent.lock().unwrap().receipts.len();
        assert_eq!(waiting, 0, "receipts without an answer: {report}");
        let keys = std::mem::take(&mut self.sent.lock().unwrap().keys);
        let mut told = Told::default();
        let mut survivor = BTreeMap::new();
        let mut duplicates = Vec::new();
        let mut gone = BTreeMap::<Key, Vec<Id>>::new();
        for (&id, answer) in &answers {
            let key = keys[&id];
            told.0.push((id, word(id, answer)));
            for older in gone.remove(&key).unwrap_or_default() {
                self.history.coalesced(older, id);
            }
            match answer {
                Ok(of) if *of == id => {}
                Ok(of) => self.history.coalesced(id, *of),
                Err(ReceiptError::Declined(_)) => {
                    let into = survivor.get(&key).copied();
                    self.history.coalesced(id, into.expect("somebody waits"));
                    continue;
                }
                Err(ReceiptError::Superseded(_)) => gone.entry(key).or_default().push(id),
                Err(ReceiptError::Duplicate(_)) => duplicates.push(id),
                Err(ReceiptError::DeadLettered(_) | ReceiptError::Merged { .. }) => {}
                Err(
                    ReceiptError::Failed(_) | ReceiptError::Purged(_) | ReceiptError::Dropped(_),
                ) => evidence = evidence.discarded([id]),
                Err(ReceiptError::HandedBack { .. } | ReceiptError::Interrupted(_)) => {
                    evidence = evidence.handed_back([id]);
                }
                Err(other) => panic!("{id}: {other:?}"),
            }
            survivor.insert(key, id);
        }
        told.check(&report);
        let stats = self.jobs.stats();
        assert_eq!(stats.accepted, report.accepted);
        assert_eq!(stats.capacity_left, stats.capacity_left.max(1));
        let evidence = evidence
            .quiescent(Instant::now())
            .lanes(stats.lanes)
            .duplicates(duplicates)
            .drained(Drained::new(position, &report));
        assert_no_engine_panics();
        assert_empty(&self.jobs);
        match self.history.check(&evidence) {
            Ok(verdict) => verdict.assert_judged(&[Rule::NoLoss, Rule::NoInvention, Rule::Drain]),
            Err(violations) => panic!("{violations:?}"),
        }
        (report, told)
    }
}

/// What the receipts said: the id, and the outcome in a word.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told(pub(crate) Vec<(Id, &'static str)>);

impl Told {
    pub(crate) fn count(&self, word: &str) -> usize {
        self.0.iter().filter(|(_, is)| *is == word).count()
    }

    /// The words in the order of the ids.
    pub(crate) fn words(&self) -> Vec<&'static str> {
        self.0.iter().map(|(_, word)| *word).collect()
    }

    /// Every receipt has said what the report counts.
    #[track_caller]
    fn check(&self, report: &Report<Key, Job>) {
        let count =
            |words: &[&str]| words.iter().map(|word| self.count(word)).sum::<usize>() as u64;
        let shared = [
            "shared",
            "shared failure",
            "declined",
            "superseded",
            "merged",
            "unmerged",
        ];
        let pairs = [
            ("accepted", self.0.len() as u64, report.accepted),
            ("done", count(&["done"]), report.done),
            ("duplicates", count(&["duplicate"]), report.duplicates),
            (
                "handed back",
                count(&["back", "interrupted"]),
                report.handed_back,
            ),
        ];
        for (what, told, reported) in pairs {
            assert_eq!(told, reported, "{what}: {report}: {self:?}");
        }
        let rest = report.coalesced + report.discarded + report.dead_lettered;
        let failed = ["failed", "purged", "dropped", "dead"];
        assert_eq!(count(&shared) + count(&failed), rest, "{report}: {self:?}");
    }
}

/// The outcome in a word.
pub(crate) fn word(id: Id, answer: &Answer) -> &'static str {
    match answer {
        Ok(of) if *of == id => "done",
        Ok(_) => "shared",
        Err(ReceiptError::Failed(_)) => "failed",
        Err(ReceiptError::DeadLettered(_)) => "dead",
        Err(ReceiptError::HandedBack { .. }) => "back",
        Err(ReceiptError::Interrupted(_)) => "interrupted",
        Err(ReceiptError::Dropped(_)) => "dropped",
        Err(ReceiptError::Purged(_)) => "purged",
        Err(ReceiptError::Declined(_)) => "declined",
        Err(ReceiptError::Superseded(_)) => "superseded",
        Err(ReceiptError::Merged { handled: true }) => "merged",
        Err(ReceiptError::Merged { handled: false }) => "unmerged",
        Err(ReceiptError::Duplicate(_)) => "duplicate",
        Err(other) => panic!("{other:?}"),
    }
}
