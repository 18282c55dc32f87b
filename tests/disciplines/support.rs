//! Jobs with versions, a client that submits them and keeps their receipts, and what the receipts
//! say about a history.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use keylane::discipline::Coalesce;
use keylane::error::ReceiptError;
use keylane::{Builder, Context, Dispatcher, Report};
use keylane_testkit::scenario::{
    Numbered, Producer, Receipts, ScriptedDispatcher, judge, outcome, watch_for_engine_panics,
    within,
};
use keylane_testkit::{
    Drained, Evidence, History, Id, Key, Rule, Script, ScriptError, Scripted, Sending,
};

/// What is sent: its version is its place among the messages of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) key: Key,
    pub(crate) id: Id,
    pub(crate) version: u64,
    /// The ids that were merged into it, in their order.
    pub(crate) parts: Vec<Id>,
}

impl Job {
    /// This version of a key. The version is its id, too.
    pub(crate) fn new(key: Key, version: u64) -> Self {
        Self {
            key,
            id: version,
            version,
            parts: Vec::new(),
        }
    }
}

impl Numbered for Job {
    fn numbered(key: Option<Key>, seq: u64, id: Id) -> Self {
        Self {
            key: key.expect("disciplines are about keys"),
            id,
            version: seq,
            parts: Vec::new(),
        }
    }

    fn id(&self) -> Id {
        self.id
    }
}

pub(crate) type Jobs = ScriptedDispatcher<Key, Job>;
pub(crate) type Answer = Result<Id, ReceiptError<Job, ScriptError>>;

/// A dispatcher of jobs, all settings at their defaults.
pub(crate) fn jobs()
-> Builder<Key, Job, ScriptError, impl Fn(&Job) -> Option<Key> + Send + Sync + 'static> {
    watch_for_engine_panics();
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

/// Submits jobs and keeps their receipts. Clones are the same client.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) history: History,
    pub(crate) jobs: Jobs,
    producer: Producer<Key, Job>,
    sent: Arc<Mutex<Sent>>,
}

#[derive(Default)]
struct Sent {
    receipts: Receipts<Job, Id, ScriptError>,
    keys: BTreeMap<Id, Key>,
}

impl Client {
    /// A client of a new dispatcher with these settings, whose handler is the script.
    pub(crate) fn start<F>(
        history: &History,
        script: Script,
        jobs: Builder<Key, Job, ScriptError, F>,
    ) -> Self
    where
        F: Fn(&Job) -> Option<Key> + Send + Sync + 'static,
    {
        Self::new(history, jobs.spawn(scripted(script)).unwrap())
    }

    pub(crate) fn new(history: &History, jobs: Jobs) -> Self {
        Self {
            history: history.clone(),
            jobs: jobs.clone(),
            producer: Producer::new(history, jobs),
            sent: Arc::default(),
        }
    }

    /// The next job of a key, of the next version.
    pub(crate) async fn submit(&self, key: Key) -> Id {
        self.submit_this(key, self.producer.next(key)).await
    }

    /// The next job of a key, of this version.
    pub(crate) async fn submit_version(&self, key: Key, version: u64) -> Id {
        let job = self.producer.next_at(key, version);
        self.submit_this(key, job).await
    }

    async fn submit_this(&self, key: Key, job: (Job, Sending)) -> Id {
        let id = job.0.id;
        let receipt = self.producer.submit_this(job).await;
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
        self.sent.lock().unwrap().receipts.collect()
    }

    /// Drains and judges. Returns the report and what the receipts said.
    pub(crate) async fn finish(self, evidence: Evidence) -> (Report<Key, Job>, Outcomes) {
        let report = within(async { self.jobs.drain().await }).await;
        self.judge(report, evidence)
    }

    /// Judges a life that has ended with this report, by its history and by its receipts.
    #[track_caller]
    pub(crate) fn judge(
        self,
        report: Report<Key, Job>,
        mut evidence: Evidence,
    ) -> (Report<Key, Job>, Outcomes) {
        let position = self.history.position();
        let answers = self.answered();
        let waiting = self.sent.lock().unwrap().receipts.len();
        assert_eq!(waiting, 0, "receipts without an answer: {report}");
        let keys = std::mem::take(&mut self.sent.lock().unwrap().keys);
        let mut outcomes = Outcomes::default();
        let mut survivor = BTreeMap::new();
        let mut duplicates = Vec::new();
        let mut gone = BTreeMap::<Key, Vec<Id>>::new();
        for (&id, answer) in &answers {
            let key = keys[&id];
            outcomes.0.push((id, word(id, answer)));
            for older in gone.remove(&key).unwrap_or_default() {
                self.history.coalesced(older, id);
            }
            match answer {
                Ok(of) if *of == id => {}
                Ok(of) => self.history.coalesced(id, *of),
                Err(ReceiptError::Declined(_)) => {
                    let into = survivor.get(&key).copied();
                    self.history
                        .coalesced(id, into.expect("an older message waits"));
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
        outcomes.check(&report);
        let stats = self.jobs.stats();
        assert_eq!(stats.accepted, report.accepted);
        assert!(stats.capacity_left > 0);
        let drained = Drained::new(position, &report);
        let evidence = evidence.duplicates(duplicates);
        let verdict = judge(&self.history, &self.jobs, drained, evidence);
        verdict.assert_judged(&[Rule::NoLoss, Rule::NoInvention, Rule::Drain]);
        (report, outcomes)
    }
}

/// What the receipts said: the id, and the outcome in a word.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcomes(pub(crate) Vec<(Id, &'static str)>);

impl Outcomes {
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
        let shared = ["shared", "declined", "superseded", "merged", "unmerged"];
        let pairs = [
            ("accepted", self.0.len() as u64, report.accepted),
            ("done", count(&["done"]), report.done),
            ("duplicates", count(&["duplicate"]), report.duplicates),
            (
                "handed back",
                count(&["handed back", "interrupted"]),
                report.handed_back,
            ),
        ];
        for (what, outcomes, reported) in pairs {
            assert_eq!(outcomes, reported, "{what}: {report}: {self:?}");
        }
        let rest = report.coalesced + report.discarded + report.dead_lettered;
        let failed = ["failed", "purged", "dropped", "dead-lettered"];
        assert_eq!(count(&shared) + count(&failed), rest, "{report}: {self:?}");
    }
}

/// The outcome in a word.
pub(crate) fn word(id: Id, answer: &Answer) -> &'static str {
    match answer {
        Ok(of) if *of != id => "shared",
        answer => outcome(answer),
    }
}
