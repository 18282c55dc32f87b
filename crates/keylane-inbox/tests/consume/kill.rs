//! A process that accepts and consumes, and is killed at random moments, a quarter of them while it
//! recovers. What it has written down is judged: nothing that was accepted is lost, no key is out
//! of order, and what was handled twice was in flight or not confirmed at a kill.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use keylane::consume::IntakeSettings;
use keylane::discipline::Sequence;
use keylane::source::RawMessage;
use keylane::{Context, OnExhausted, Retry};
use keylane_inbox::{Letter, LetterKind, NewMessage};
use keylane_testkit::scenario::{Random, by_key};
use keylane_testkit::{Acceptance, Evidence, History, Id, Key, Outcome, Violation};
use tempfile::TempDir;
use testkit_processes::Process;

use crate::logged::{Line, Log, Logged, parse};
use crate::support::{id_of, open};

/// How often processes are killed over all workloads, unless `KEYLANE_KILLS` says otherwise.
const KILLS: usize = 100;

/// After so many kills of one directory everything is handled, and judged.
const CHAPTER: usize = 20;

/// Most attempts of a message in the workload whose messages fail.
const ATTEMPTS: u32 = 4;

/// The last process gives up when nothing has been handled for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ids are those of the key times this, and the place in the key.
const PLACES: Id = 1_000_000;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    ManyKeys,
    HotKey,
    FailingKeys,
    Versions,
    LargeAndSlow,
}

impl Workload {
    const ALL: [Self; 5] = [
        Self::ManyKeys,
        Self::HotKey,
        Self::FailingKeys,
        Self::Versions,
        Self::LargeAndSlow,
    ];

    fn keys(self) -> Key {
        match self {
            Self::ManyKeys => 500,
            Self::HotKey => 10,
            Self::FailingKeys | Self::Versions => 40,
            Self::LargeAndSlow => 8,
        }
    }

    /// The key of the n-th message of a producer.
    fn key(self, producer: u64, n: u64) -> Key {
        let own = self.keys() / PRODUCERS;
        match self {
            // Three messages of four are of one key, and one producer has it.
            Self::HotKey if producer == 0 && n % 4 < 3 => 0,
            Self::HotKey => producer * 5 + 1 + n % 4,
            _ => producer * own + n % own,
        }
    }

    /// The place in its key of the n-th message that is sent of it.
    fn place(self, key: Key, n: u64) -> u64 {
        if self != Self::Versions {
            return n + 1;
        }
        // Six versions in any order, and then the next six.
        let (block, at) = (n / 6, n % 6);
        let step = [1, 5][(key + block) as usize % 2];
        block * 6 + (at * step + key + block) % 6 + 1
    }

    fn payload(self, id: Id) -> Vec<u8> {
        let mut payload = id.to_be_bytes().to_vec();
        if self == Self::LargeAndSlow {
            payload.resize(100_000 + (id % 7) as usize * 50_000, id as u8);
        }
        payload
    }

    fn message(self, id: Id) -> NewMessage {
        let message = NewMessage::new((id / PLACES).to_string(), self.payload(id));
        match self {
            Self::Versions => message.version(id % PLACES),
            _ => message.id(id.to_string()),
        }
    }

    async fn handle(self, id: Id, attempt: u32) -> bool {
        match self {
            Self::ManyKeys | Self::HotKey | Self::Versions => {
                tokio::task::yield_now().await;
                true
            }
            // Some for ever, some once.
            Self::FailingKeys => !id.is_multiple_of(7) && (!id.is_multiple_of(5) || attempt > 1),
            Self::LargeAndSlow => {
                tokio::time::sleep(Duration::from_millis(2 + id % 9)).await;
                true
            }
        }
    }

    fn evidence(self) -> Evidence {
        let evidence = Evidence::new().quiescent(tokio::time::Instant::now());
        match self {
            Self::FailingKeys => evidence.max_attempts(ATTEMPTS),
            Self::Versions => evidence.sequencing(),
            _ => evidence,
        }
    }
}

const PRODUCERS: u64 = 2;

#[test]
fn many_keys() {
    judged(Workload::ManyKeys);
}

#[test]
fn one_hot_key() {
    judged(Workload::HotKey);
}

#[test]
fn failing_keys_with_dead_letters() {
    judged(Workload::FailingKeys);
}

#[test]
fn versions_out_of_order() {
    judged(Workload::Versions);
}

#[test]
fn large_payloads_and_slow_handlers() {
    judged(Workload::LargeAndSlow);
}

fn judged(workload: Workload) {
    let kills = std::env::var("KEYLANE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mine = kills.div_ceil(Workload::ALL.len());
    let mut left = mine;
    let mut sum = Figures::default();
    while left > 0 {
        let run = Run::new(workload, left.min(CHAPTER));
        run.judge();
        sum.add(run.figures());
        left -= left.min(CHAPTER);
    }
    println!("{workload:?}: {sum}");
    assert!(sum.handled > 0);
    assert!(sum.kills >= mine && sum.in_recovery * 4 >= mine, "{sum}");
}

/// The lines of processes, and what is in their inbox in the end.
pub(crate) struct Run {
    workload: Workload,
    lines: Vec<Line>,
    letters: Vec<Letter>,
    waiting: u64,
    kills: usize,
    in_recovery: usize,
    /// What is kept for a look if this fails.
    _directory: Option<TempDir>,
}

impl Run {
    /// Kills a process so many times, a quarter of them before the inbox that another kill has left
    /// is open, and lets the last one finish.
    pub(crate) fn new(workload: Workload, kills: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut random = Random::new(kills as u64);
        let mut opening = Duration::from_millis(5);
        let mut in_recovery = 0;
        let mut epoch = 0;
        // A kill that was meant for a recovery, and came too late, is one like the others. If they
        // all come too late, the figures show it.
        while epoch < kills || (in_recovery * 4 < kills && epoch < 3 * kills) {
            epoch += 1;
            let is_for_recovery = epoch > 1 && in_recovery * 4 < epoch;
            let mut process = start(directory.path(), workload, false);
            process.blocking_wait_for("opening");
            let began = Instant::now();
            if is_for_recovery {
                let most = opening.as_micros() as u64;
                std::thread::sleep(Duration::from_micros(random.below(most.max(1))));
            } else {
                process.blocking_wait_for("open");
                opening = began.elapsed();
                std::thread::sleep(Duration::from_micros(random.below(120_000)));
            }
            process.kill();
            if is_for_recovery {
                match process.blocking_rest().iter().any(|line| line == "open") {
                    false => in_recovery += 1,
                    // It takes less time now.
                    true => opening /= 2,
                }
            }
            Log::open(directory.path()).write([Line::Crash(epoch as u64)]);
        }
        let mut last = start(directory.path(), workload, true);
        last.blocking_wait_for("done");
        last.blocking_wait();
        let (letters, waiting) = left(directory.path());
        Self {
            workload,
            lines: Log::read(directory.path()),
            letters,
            waiting,
            kills: epoch,
            in_recovery,
            _directory: Some(directory),
        }
    }

    /// What happened, in the words of the checker.
    pub(crate) fn history(&self) -> History {
        let history = History::new();
        let accepted: BTreeSet<Id> = ids(&self.lines, |line| matches!(line, Line::Accepted(_)));
        let mut unsure = BTreeSet::new();
        let mut unwritten = self.unwritten_letters();
        let mut epoch = 1;
        for (at, line) in self.lines.iter().enumerate() {
            let sent = |id: Id, acceptance| {
                history.sent(id / PLACES, id % PLACES, id, acceptance);
            };
            match *line {
                Line::Asked(id) if !accepted.contains(&id) => {
                    if unsure.insert(id) {
                        sent(id, Acceptance::Unknown);
                    }
                }
                Line::Asked(_) => {}
                Line::Accepted(id) => sent(id, Acceptance::Ok),
                Line::Start(id, attempt) => history.start(id, attempt, epoch),
                Line::End(id, attempt, true) => history.end(id, attempt, Outcome::Ok),
                Line::End(id, attempt, false) => history.end(id, attempt, Outcome::Error),
                Line::Dead(id) => history.dead(id),
                Line::Settled(id) => history.ack_req(id),
                Line::Confirmed(id) => history.ack_ok(id),
                Line::Crash(of) => {
                    for id in unwritten.remove(&at).unwrap_or_default() {
                        history.dead(id);
                    }
                    history.crash(of);
                    epoch = of + 1;
                }
            }
        }
        history
    }

    /// Letters that were durable when the process was killed, before it could say so: by the line of
    /// that kill.
    fn unwritten_letters(&self) -> BTreeMap<usize, Vec<Id>> {
        let written = ids(&self.lines, |line| matches!(line, Line::Dead(_)));
        let mut unwritten: BTreeMap<usize, Vec<Id>> = BTreeMap::new();
        for letter in &self.letters {
            let id = letter_id(letter);
            if written.contains(&id) {
                continue;
            }
            let of_id = |line: &Line| matches!(*line, Line::Start(of, _) if of == id);
            let last = self.lines.iter().rposition(of_id).unwrap_or(0);
            let crashes =
                (last..self.lines.len()).filter(|at| matches!(self.lines[*at], Line::Crash(_)));
            // One that has crashed was given up on by the process after that.
            let skipped = usize::from(letter.kind == LetterKind::Crashed);
            let at = crashes.clone().nth(skipped);
            let at = at.expect("what a process has done it has written, or it was killed");
            unwritten.entry(at).or_default().push(id);
        }
        unwritten
    }

    /// I1 to I8, and what the checker cannot see.
    fn verdict(&self) -> Result<(), Vec<Violation>> {
        self.history().check(&self.workload.evidence()).map(|_| ())
    }

    fn judge(&self) {
        if let Err(violations) = self.verdict() {
            let texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
            panic!("{:?}\n{}", self.workload, texts.join("\n"));
        }
        assert_eq!(self.waiting, 0);
        let written = ids(&self.lines, |line| matches!(line, Line::Dead(_)));
        let kept: BTreeSet<Id> = self.letters.iter().map(letter_id).collect();
        let gone: Vec<_> = written.difference(&kept).collect();
        assert!(gone.is_empty(), "letters were lost: {gone:?}");
        assert_eq!(kept.len(), self.letters.len(), "a message has two letters");
        for letter in &self.letters {
            let id = letter_id(letter);
            assert_eq!(self.workload, Workload::FailingKeys, "{id} is a letter");
            assert_eq!(letter.attempts, ATTEMPTS, "{id}");
            // What does not fail can only be a letter if the process died at each of its attempts.
            let fails = id.is_multiple_of(7);
            assert!(
                fails || letter.kind == LetterKind::Crashed,
                "{id} is a letter"
            );
        }
    }

    fn figures(&self) -> Figures {
        let mut figures = Figures {
            kills: self.kills,
            in_recovery: self.in_recovery,
            accepted: ids(&self.lines, |line| matches!(line, Line::Accepted(_))).len(),
            letters: self.letters.len(),
            ..Figures::default()
        };
        // What may come again: started, or done, and not confirmed.
        let mut open = BTreeSet::new();
        let mut may_repeat = BTreeSet::new();
        let mut handled = BTreeSet::new();
        for line in &self.lines {
            match *line {
                Line::Start(id, _) => {
                    figures.repeated += usize::from(may_repeat.remove(&id));
                    open.insert(id);
                }
                Line::End(id, _, true) => {
                    handled.insert(id);
                }
                Line::Confirmed(id) => {
                    open.remove(&id);
                }
                Line::Crash(_) => {
                    figures.may_repeat += open.len();
                    may_repeat.extend(std::mem::take(&mut open));
                }
                _ => {}
            }
        }
        figures.handled = handled.len();
        figures
    }
}

/// What was killed, and what came of it.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    kills: usize,
    in_recovery: usize,
    accepted: usize,
    handled: usize,
    letters: usize,
    repeated: usize,
    may_repeat: usize,
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.in_recovery += other.in_recovery;
        self.accepted += other.accepted;
        self.handled += other.handled;
        self.letters += other.letters;
        self.repeated += other.repeated;
        self.may_repeat += other.may_repeat;
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kills,
            in_recovery,
            accepted,
            handled,
            letters,
            repeated,
            may_repeat,
        } = self;
        write!(
            f,
            "{kills} kills, {in_recovery} of them before the inbox was open; {accepted} accepted, \
             {handled} handled, {letters} dead-lettered, 0 lost, 0 reordered; {repeated} started \
             again, of {may_repeat} that might"
        )
    }
}

fn ids(lines: &[Line], chosen: impl Fn(&Line) -> bool) -> BTreeSet<Id> {
    let chosen = lines.iter().filter(|line| chosen(line));
    let ids = chosen.map(|line| match *line {
        Line::Asked(id) | Line::Accepted(id) | Line::Dead(id) => id,
        _ => unreachable!("only these are asked for"),
    });
    ids.collect()
}

fn letter_id(letter: &Letter) -> Id {
    Id::from_be_bytes(letter.message.payload[..8].try_into().unwrap())
}

/// The letters in an inbox, and how many messages wait in it.
fn left(directory: &Path) -> (Vec<Letter>, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let inbox = open(directory).await;
        let letters = inbox.letters().list(0, usize::MAX).await.unwrap();
        let waiting = inbox.stats().await.unwrap().waiting;
        inbox.close().await.unwrap();
        (letters, waiting)
    })
}

fn start(directory: &Path, workload: Workload, is_last: bool) -> Process {
    let variables = [
        ("KEYLANE_INBOX_CHILD", directory.as_os_str().to_owned()),
        ("KEYLANE_INBOX_WORKLOAD", format!("{workload:?}").into()),
        ("KEYLANE_INBOX_LAST", is_last.to_string().into()),
    ];
    Process::start("kill::child", variables)
}

/// What is killed. Nothing, unless it is started by the tests above.
#[test]
fn child() {
    let Some(directory) = std::env::var_os("KEYLANE_INBOX_CHILD") else {
        return;
    };
    let workload = std::env::var("KEYLANE_INBOX_WORKLOAD").unwrap();
    let workload = Workload::ALL
        .into_iter()
        .find(|one| format!("{one:?}") == workload);
    let is_last = std::env::var("KEYLANE_INBOX_LAST").unwrap() == "true";
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run(PathBuf::from(directory), workload.unwrap(), is_last));
}

async fn run(directory: PathBuf, workload: Workload, is_last: bool) {
    let before = Log::read(&directory);
    let log = Log::open(&directory);
    println!("\nopening");
    let inbox = open(&directory).await;
    println!("\nopen");
    let waiting = Arc::new(AtomicI64::new(inbox.stats().await.unwrap().waiting as i64));

    let attempts = match workload {
        Workload::FailingKeys => ATTEMPTS,
        _ => 1_000_000,
    };
    let mut builder = by_key()
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(attempts))
        .on_exhausted(OnExhausted::AtSource);
    if workload == Workload::Versions {
        let sequence = Sequence::contiguous(|message: &RawMessage| message.version.unwrap_or(0));
        builder = builder.sequence(sequence.from(1).store(inbox.clone()));
    }
    let dispatcher = builder
        .spawn({
            let (log, waiting) = (log.clone(), Arc::clone(&waiting));
            move |context: Context<Bytes>, message: RawMessage| {
                let (log, waiting) = (log.clone(), Arc::clone(&waiting));
                async move {
                    let (id, attempt) = (id_of(&message), context.attempt());
                    assert_eq!(message.payload, workload.payload(id), "{id}");
                    let is_ok = workload.handle(id, attempt).await;
                    log.write([Line::End(id, attempt, is_ok)]);
                    if is_ok || attempt == attempts {
                        waiting.fetch_sub(1, Ordering::Relaxed);
                    }
                    if is_ok {
                        Ok(())
                    } else {
                        Err("it fails".into())
                    }
                }
            }
        })
        .unwrap();
    let settings = IntakeSettings::new().confirm_every(Duration::from_millis(5));
    let source = Logged::new(inbox.source(), &log);
    let intake = dispatcher.consume_with(source, settings).unwrap();

    let producers = (0..PRODUCERS).map(|producer| {
        let mut producer = Producer::new(workload, producer, &before);
        let (inbox, log, waiting) = (inbox.clone(), log.clone(), Arc::clone(&waiting));
        tokio::spawn(async move {
            let mut size = 1;
            loop {
                while waiting.load(Ordering::Relaxed) > 400 && !is_last {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                size = size % 24 + 1;
                let ids = producer.next(size, is_last);
                if ids.is_empty() {
                    return;
                }
                log.write(ids.iter().copied().map(Line::Asked));
                let messages = ids.iter().map(|id| workload.message(*id));
                inbox.accept_many(messages).await.unwrap();
                waiting.fetch_add(ids.len() as i64, Ordering::Relaxed);
                log.write(ids.iter().copied().map(Line::Accepted));
            }
        })
    });
    for producer in Vec::from_iter(producers) {
        producer.await.unwrap();
    }
    let (mut left, mut since) = (u64::MAX, Instant::now());
    while left > 0 {
        let waiting = inbox.stats().await.unwrap().waiting;
        if waiting != left {
            (left, since) = (waiting, Instant::now());
        }
        if since.elapsed() > PATIENCE {
            // Something was lost that the others wait for. The judge says what.
            println!("\ndone");
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    crate::support::adds_up(&intake.stop().await);
    inbox.close().await.unwrap();
    println!("\ndone");
}

/// Sends the messages of some keys. What was not answered before the process died is sent again,
/// with the same ids.
struct Producer {
    workload: Workload,
    number: u64,
    unsure: Vec<Id>,
    /// How many messages were sent of each key.
    sent: BTreeMap<Key, u64>,
    turn: u64,
}

impl Producer {
    fn new(workload: Workload, number: u64, before: &[Line]) -> Self {
        let accepted = ids(before, |line| matches!(line, Line::Accepted(_)));
        let mut unsure = Vec::new();
        let mut known = accepted.clone();
        for line in before {
            if let Line::Asked(id) = *line
                && known.insert(id)
            {
                unsure.push(id);
            }
        }
        let half = workload.keys() / PRODUCERS;
        let is_ours = |id: &Id| (id / PLACES) / half == number;
        unsure.retain(is_ours);
        let mut sent: BTreeMap<Key, u64> = BTreeMap::new();
        for id in known.iter().filter(|id| is_ours(id)) {
            *sent.entry(id / PLACES).or_default() += 1;
        }
        Self {
            workload,
            number,
            unsure,
            turn: sent.values().sum(),
            sent,
        }
    }

    /// Up to so many messages. At the end, only what is needed to finish.
    fn next(&mut self, most: usize, is_last: bool) -> Vec<Id> {
        if !self.unsure.is_empty() {
            let most = most.min(self.unsure.len());
            return self.unsure.drain(..most).collect();
        }
        let mut ids = Vec::new();
        if is_last {
            // Versions wait for the others of their block.
            let open = self.sent.iter().find(|(_, sent)| !sent.is_multiple_of(6));
            if let (Workload::Versions, Some((&key, _))) = (self.workload, open) {
                ids.push(self.next_of(key));
            }
            return ids;
        }
        for _ in 0..most {
            let key = self.workload.key(self.number, self.turn);
            self.turn += 1;
            ids.push(self.next_of(key));
        }
        ids
    }

    fn next_of(&mut self, key: Key) -> Id {
        let sent = self.sent.entry(key).or_default();
        *sent += 1;
        key * PLACES + self.workload.place(key, *sent - 1)
    }
}

/// The judge of these logs finds what it is there for.
#[test]
fn a_bad_log_is_found() {
    let verdict = |text: &str| {
        let text: String = text.split(", ").map(|line| format!("{line} .\n")).collect();
        let run = Run {
            workload: Workload::ManyKeys,
            lines: parse(&text),
            letters: Vec::new(),
            waiting: 0,
            kills: 1,
            in_recovery: 0,
            _directory: None,
        };
        let violations = run.verdict().err().unwrap_or_default();
        let rules = violations
            .iter()
            .map(|violation| violation.rule.to_string());
        rules.map(|rule| rule[..2].to_owned()).collect::<Vec<_>>()
    };
    let handled = |id| format!("start {id} 1, ok {id} 1, settled {id}, confirmed {id}");
    let (one, two) = (handled(1), handled(2));
    let sent = "accepted 1, accepted 2";
    assert_eq!(verdict(&format!("{sent}, {one}, crash 1, {two}")), [""; 0]);
    assert_eq!(
        verdict(&format!("{sent}, start 1 1, crash 1, {one}, {two}")),
        [""; 0]
    );
    assert_eq!(verdict(&format!("{sent}, {one}, crash 1")), ["I1"]);
    assert_eq!(verdict(&format!("{sent}, {two}, {one}")), ["I4"]);
    assert!(verdict(&format!("{sent}, {one}, crash 1, {one}, {two}")).contains(&"I7".to_owned()));
    assert_eq!(verdict(&format!("{sent}, {one}, {two}, start 3 1")), ["I2"]);
}
