//! One store of letters as the console has it: its pages, and the one job that may run over it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use keylane::error::BoxError;
use serde::Serialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::job::JobView;
use super::shown::{ALONE, IN_LIST, LetterRow, matches};
use super::store::{LetterStore, NoId, StoredLetter};
use crate::rows::cut;
use crate::who::Who;

/// Most letters of a page.
pub(crate) const PAGE: usize = 50;

/// Letters that one request looks at to fill a page, and that a job takes at once.
const LOOKED_AT: usize = 2_000;
const STEP: usize = 200;

/// How long a store may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is done to letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Redrive,
    Purge,
}

/// To which letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// To these, at once.
    Ids(Vec<String>),
    /// To all that the filter chooses, as a job.
    Filter(String),
}

/// Why nothing was done.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// A job runs.
    Busy,
    /// It is the id of no letter.
    NoId(String),
    /// The store has failed.
    Failed(String),
}

/// A page of letters.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    pub(crate) letters: Vec<LetterRow>,
    /// The id behind which the next page begins; `None` if there is none.
    pub(crate) next: Option<String>,
    /// How many letters were looked at for it.
    pub(crate) looked_at: usize,
}

/// One store, and its job.
pub(crate) struct Shelf {
    pub(crate) name: String,
    store: Arc<dyn LetterStore>,
    job: Arc<Mutex<Option<JobView>>>,
    stop: Mutex<CancellationToken>,
    closed: CancellationToken,
}

impl Shelf {
    pub(crate) fn new(name: &str, store: Arc<dyn LetterStore>, closed: &CancellationToken) -> Self {
        Self {
            name: name.to_owned(),
            store,
            job: Arc::default(),
            stop: Mutex::default(),
            closed: closed.clone(),
        }
    }

    pub(crate) fn job(&self) -> Option<JobView> {
        lock(&self.job).clone()
    }

    pub(crate) async fn page(&self, after: Option<&str>, filter: &str) -> Result<Page, Unfit> {
        let (mut letters, mut looked_at) = (Vec::new(), 0);
        let mut after = after.map(str::to_owned);
        loop {
            // One more than fits says whether there is a next page.
            let listed = self.list(after.as_deref(), PAGE + 1).await?;
            let is_last = listed.len() <= PAGE;
            for letter in listed {
                if letters.len() == PAGE {
                    return Ok(Page {
                        letters,
                        next: after,
                        looked_at,
                    });
                }
                looked_at += 1;
                after = Some(letter.id.clone());
                if matches(&letter, filter, None) {
                    letters.push(LetterRow::of(&letter, IN_LIST));
                }
            }
            if is_last {
                return Ok(Page {
                    letters,
                    next: None,
                    looked_at,
                });
            }
            if looked_at >= LOOKED_AT {
                return Ok(Page {
                    letters,
                    next: after,
                    looked_at,
                });
            }
        }
    }

    pub(crate) async fn letter(&self, id: &str) -> Result<Option<LetterRow>, Unfit> {
        let letter = answered(self.store.show(id)).await?;
        Ok(letter.map(|letter| LetterRow::of(&letter, ALONE)))
    }

    async fn list(&self, after: Option<&str>, most: usize) -> Result<Vec<StoredLetter>, Unfit> {
        answered(self.store.list(after, most)).await
    }

    /// Acts on letters. `Some`: on so many. `None`: a job has begun.
    pub(crate) async fn act(
        &self,
        what: What,
        which: Which,
        who: Who,
    ) -> Result<Option<u64>, Unfit> {
        match which {
            Which::Ids(ids) => {
                if self.job().is_some_and(|job| job.runs()) {
                    return Err(Unfit::Busy);
                }
                apply(&*self.store, what, &ids).await.map(Some)
            }
            Which::Filter(filter) => self.begin(what, filter, who).map(|()| None),
        }
    }

    /// Stops the job. What it has done stays. False: none runs.
    pub(crate) fn stop(&self) -> bool {
        let mut job = lock(&self.job);
        match job.as_mut().filter(|job| job.runs()) {
            Some(job) => {
                job.state = "stopping";
                lock(&self.stop).cancel();
                true
            }
            None => false,
        }
    }

    fn begin(&self, what: What, filter: String, who: Who) -> Result<(), Unfit> {
        let mut job = lock(&self.job);
        if job.as_ref().is_some_and(JobView::runs) {
            return Err(Unfit::Busy);
        }
        *job = Some(JobView {
            action: what.name(),
            filter: cut(&filter),
            state: "running",
            ..JobView::default()
        });
        let stop = self.closed.child_token();
        *lock(&self.stop) = stop.clone();
        drop(job);
        let run = Run {
            store: Arc::clone(&self.store),
            what,
            filter,
            stop,
            job: Ended {
                job: Arc::clone(&self.job),
                letters: self.name.clone(),
                who,
            },
        };
        tokio::spawn(run.work_to_the_end());
        Ok(())
    }
}

impl What {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redrive => "redrive_letters",
            Self::Purge => "purge_letters",
        }
    }
}

/// A job that runs.
struct Run {
    store: Arc<dyn LetterStore>,
    what: What,
    filter: String,
    stop: CancellationToken,
    job: Ended,
}

impl Run {
    async fn work_to_the_end(self) {
        let stopped = self.stop.clone();
        let worked = tokio::select! {
            biased;
            // A step that has begun is not told to end: it is dropped, and the store has done all
            // of it or a part.
            () = stopped.cancelled() => Ok(false),
            worked = self.work() => worked.map(|()| true),
        };
        let (state, why) = match worked {
            Ok(true) => ("done", String::new()),
            Ok(false) => ("stopped", String::new()),
            Err(Unfit::Failed(why) | Unfit::NoId(why)) => ("failed", why),
            Err(Unfit::Busy) => ("failed", String::new()),
        };
        self.job.end(state, why);
    }

    async fn work(&self) -> Result<(), Unfit> {
        let until = SystemTime::now();
        let mut after: Option<String> = None;
        loop {
            let listed = answered(self.store.list(after.as_deref(), STEP)).await?;
            let Some(last) = listed.last() else {
                return Ok(());
            };
            after = Some(last.id.clone());
            let chosen = listed.iter();
            let chosen = chosen.filter(|letter| matches(letter, &self.filter, Some(until)));
            let ids: Vec<String> = chosen.map(|letter| letter.id.clone()).collect();
            let done = match ids.is_empty() {
                true => 0,
                false => apply(&*self.store, self.what, &ids).await?,
            };
            self.job.advance(listed.len() as u64, done);
        }
    }
}

/// The progress of a job, which ends with its task, and is in the log then.
struct Ended {
    job: Arc<Mutex<Option<JobView>>>,
    letters: String,
    who: Who,
}

impl Ended {
    fn advance(&self, seen: u64, done: u64) {
        if let Some(job) = &mut *lock(&self.job) {
            job.seen += seen;
            job.done += done;
        }
    }

    fn end(&self, state: &'static str, why: String) {
        let mut job = lock(&self.job);
        let runs = job.as_mut().filter(|job| job.runs());
        let ended = runs.map(|job| {
            (job.state, job.why) = (state, cut(&why));
            job.clone()
        });
        drop(job);
        if let Some(ended) = ended {
            self.log(&ended);
        }
    }

    fn log(&self, job: &JobView) {
        tracing::warn!(
            target: "keylane_console",
            action = job.action,
            // As literals: they must not make a line of their own.
            letters = ?cut(&self.letters),
            filter = ?job.filter,
            session = self.who.session,
            peer = self.who.peer(),
            result = job.state,
            count = job.done,
            looked_at = job.seen,
            why = ?job.why,
            "a job over dead letters has ended"
        );
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // The store has panicked, or the runtime ends.
        self.end("failed", "the job was cut off".to_owned());
    }
}

async fn apply(store: &dyn LetterStore, what: What, ids: &[String]) -> Result<u64, Unfit> {
    match what {
        What::Redrive => answered(store.redrive(ids)).await,
        What::Purge => answered(store.purge(ids)).await,
    }
}

async fn answered<T>(call: impl Future<Output = Result<T, BoxError>>) -> Result<T, Unfit> {
    match timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.is::<NoId>() => Err(Unfit::NoId(error.to_string())),
        Ok(Err(error)) => Err(Unfit::Failed(error.to_string())),
        Err(_) => Err(Unfit::Failed(format!("no answer within {PATIENCE:?}"))),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
