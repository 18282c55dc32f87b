//! Which calls fail, and what comes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use keylane_inbox::Inbox;
use keylane_testkit::scenario::Random;

use crate::files::Files;
use crate::judge::{self, Said};
use crate::strace::{self, Error, Injection};
use crate::trace::{Call, Trace};

/// The first call is 1, the last one this.
const LAST: usize = 2_000;

/// How many of the calls fail, each with both errors, unless `KEYLANE_SYSCALLS` says otherwise.
const SAMPLE: usize = 40;

#[test]
fn whatever_call_fails_nothing_acked_is_lost() {
    let sample = std::env::var("KEYLANE_SYSCALLS").map_or(SAMPLE, |n| n.parse().unwrap());
    // How many it makes depends on which writes share a sync, and so on the other load of the machine.
    let mut calls = calls();
    for _ in 1..5 {
        if calls.len() < LAST {
            calls = self::calls();
        }
    }
    assert!(calls.len() >= LAST, "the workload makes {}", calls.len());
    let runs = Vec::from_iter(
        chosen(sample, &calls)
            .into_iter()
            .flat_map(|n| runs(n, &calls)),
    );
    let figures = Mutex::new(Figures::default());
    let failures = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    // More than there are cores: some wait for the disk.
    let threads = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Relaxed: a number, and nothing follows from it about other memory.
                while let Some((n, run)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match tried(run) {
                        Ok(outcome) => figures.lock().unwrap().add(*n, run, &outcome),
                        Err(failure) => {
                            let failure = format!("call {n}, {run}: {failure}");
                            println!("{failure}");
                            failures.lock().unwrap().push(failure);
                        }
                    }
                }
            });
        }
    });
    let (failures, figures) = (
        failures.into_inner().unwrap(),
        figures.into_inner().unwrap(),
    );
    println!("{figures}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // Threads share the calls a little differently in each run, so that some are not reached.
    assert!(figures.hit * 10 >= figures.runs * 9, "{figures}");
}

/// The calls of a run in which nothing fails, in the order in which they begin.
fn calls() -> Vec<Call> {
    let folder = tempfile::tempdir().unwrap();
    let outcome = outcome(&Files::at(folder.path()), None).unwrap();
    assert!(outcome.said.is_whole && outcome.said.refused == 0);
    let journal = Files::at(folder.path()).journal();
    let calls = outcome.trace.calls.into_iter();
    calls.filter(|call| call.path != journal).collect()
}

/// So many numbers from 1 to the last, the same ones in every run: half of them spread evenly, and
/// half of them by name, because most calls are writes.
fn chosen(sample: usize, calls: &[Call]) -> BTreeSet<usize> {
    if sample >= LAST {
        return (1..=LAST).collect();
    }
    let mut random = Random::new(sample as u64);
    let mut some = |of: usize| random.below(of as u64) as usize;
    let spread = sample - sample / 2;
    let numbers = (0..spread).map(|at| {
        let (from, to) = (at * LAST / spread, (at + 1) * LAST / spread);
        from + 1 + some(to - from)
    });
    let mut numbers = BTreeSet::from_iter(numbers);
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, call) in calls[..LAST].iter().enumerate() {
        by_name.entry(&call.name).or_default().push(at + 1);
    }
    while numbers.len() < sample {
        by_name.retain(|_, of_name| !of_name.is_empty());
        for of_name in by_name.values_mut() {
            if numbers.len() < sample {
                numbers.insert(of_name.swap_remove(some(of_name.len())));
            }
        }
    }
    numbers
}

/// The n-th call fails with each error; now and then, all by its name from there on.
fn runs(n: usize, calls: &[Call]) -> Vec<(usize, Injection)> {
    let call = &calls[n - 1];
    let injection = |error, is_lasting| Injection {
        name: call.name.clone(),
        count: call.count,
        error,
        is_lasting,
    };
    let mut runs = vec![
        (n, injection(Error::Eio, false)),
        (n, injection(Error::Enospc, false)),
    ];
    if n.is_multiple_of(10) {
        runs.push((n, injection(Error::Eio, true)));
        runs.push((n, injection(Error::Enospc, true)));
    }
    runs
}

struct Outcome {
    trace: Trace,
    said: Said,
}

fn tried(injection: &Injection) -> Result<Outcome, String> {
    let mut folder = tempfile::tempdir().unwrap();
    let outcome = outcome(&Files::at(folder.path()), Some(injection));
    // For a look at it.
    folder.disable_cleanup(outcome.is_err());
    outcome.map_err(|failure| format!("{failure}\nsee {}", folder.path().display()))
}

fn outcome(files: &Files, injection: Option<&Injection>) -> Result<Outcome, String> {
    let ended = strace::run(files, injection);
    if ended.said.contains("panicked") {
        return Err(ended.said);
    }
    match ended.status {
        Some(status) if status.success() => {}
        Some(status) => return Err(format!("{status}: {}", ended.said)),
        None => return Err("it does not end".into()),
    }
    let trace = Trace::parse(&ended.log)?;
    let said = judge::judge(&trace, files)?;
    let untold = injection.and_then(|injection| untold(injection.error, &said));
    if let Some(refusal) = untold {
        return Err(format!("the error is not told: {refusal}"));
    }
    let is_lasting = injection.is_some_and(|injection| injection.is_lasting);
    if !said.is_whole && !is_lasting {
        return Err("one call has failed, and it gave up".into());
    }
    let (waiting, letters) = left(files)?;
    said.check(&waiting, &letters)?;
    Ok(Outcome { trace, said })
}

/// The first refusal, if it does not say what is wrong with the disk.
fn untold(error: Error, said: &Said) -> Option<&str> {
    let refusal = said.first_refusal.as_deref()?;
    let is_told = match error {
        Error::Eio => refusal.contains("Input/output error"),
        // Who could not write is told that there is no room, and not only in words.
        Error::Enospc if refusal.contains("NotCommitted") => refusal.contains("no_space: true"),
        Error::Enospc => refusal.contains("NoSpace") || refusal.contains("No space left"),
    };
    (!is_told).then_some(refusal)
}

type Payloads = Vec<Vec<u8>>;

/// What waits in the inbox, and its letters, on a disk that works; it takes messages as well.
fn left(files: &Files) -> Result<(Payloads, Payloads), String> {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let not_open = |error| format!("it does not open again: {error}");
        let inbox = Inbox::open(files.inbox()).await.map_err(not_open)?;
        let waiting = inbox.store().scan(0, usize::MAX, usize::MAX).await;
        let letters = inbox.letters().list(0, usize::MAX).await;
        let accepted = inbox.accept("key", "one more").await;
        accepted.map_err(|error| error.to_string())?;
        let waiting = waiting.map_err(|error| error.to_string())?;
        let letters = letters.map_err(|error| error.to_string())?;
        inbox.close().await.map_err(|error| error.to_string())?;
        let waiting = waiting.iter().map(|one| one.payload.to_vec()).collect();
        let letters = letters.iter().map(|one| one.message.payload.to_vec());
        Ok((waiting, letters.collect()))
    })
}

/// What has failed, and what came of it.
#[derive(Debug, Default)]
struct Figures {
    runs: usize,
    /// In so many a call has failed.
    hit: usize,
    failed_calls: usize,
    refused: usize,
    acked: usize,
    by_name: BTreeMap<String, usize>,
    /// The first and the last.
    numbers: Option<(usize, usize)>,
}

impl Figures {
    fn add(&mut self, n: usize, run: &Injection, outcome: &Outcome) {
        let failed = outcome.trace.calls.iter().filter(|call| call.is_injected);
        let failed = failed.count();
        self.runs += 1;
        self.hit += usize::from(failed > 0);
        self.failed_calls += failed;
        self.refused += outcome.said.refused;
        self.acked += outcome.said.acked.len();
        *self.by_name.entry(run.name.clone()).or_default() += 1;
        let (first, last) = self.numbers.unwrap_or((n, n));
        self.numbers = Some((first.min(n), last.max(n)));
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            runs,
            hit,
            failed_calls,
            refused,
            acked,
            by_name,
            numbers,
        } = self;
        let (first, last) = numbers.unwrap_or_default();
        write!(
            f,
            "{runs} runs, from call {first} to call {last}; {failed_calls} calls have failed in \
             {hit} of them, {refused} errors were told, {acked} messages acked, 0 lost; {by_name:?}"
        )
    }
}
