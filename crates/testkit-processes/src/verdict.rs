//! The judge of workers on a server that fails over.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use crate::record::{Entry, Event};
use crate::{Answer, Attempt, Sent, Step, Story, What};

/// What workers did with messages while their server failed over, in figures.
///
/// The effects of the workers are those that a sink accepts which compares tokens: from the start
/// of an attempt with a higher token of its key on, it refuses all lower ones. An attempt that is
/// refused is *stale*, and no attempt for what follows. Workers on a server without tokens write
/// the same number each time. A worker knows its own attempts: those of one key overlap under any
/// tokens.
///
/// After a fault that loses what the server has confirmed, tokens may be drawn again. So overlaps
/// and stale attempts are looked for within each history, and not from the fault until every key
/// has gone on.
#[derive(Debug, Default)]
pub struct Verdict {
    /// How many messages the server has accepted, has refused, and has not answered.
    pub answers: [usize; 3],
    /// How many messages were done.
    pub done: usize,
    /// Accepted messages that were never done.
    pub lost: Vec<u64>,
    /// Messages that were done although nobody sent them, or the server had refused them.
    pub invented: Vec<u64>,
    /// Accepted messages of one key of which the first one began, or was done, before the second
    /// one, and was sent after it.
    pub passing: Vec<(u64, u64)>,
    /// Attempts at one key at the same time, of one history.
    pub overlapping: Vec<(Attempt, Attempt)>,
    /// How many attempts the sink has refused.
    pub stale: usize,
    /// How long before the last fault, or kill, each message had been done that was done again;
    /// zero if it was done after it. Ascending.
    pub ages: Vec<Duration>,
    /// How long after each fault the last key went on. Ascending.
    pub pauses: Vec<Duration>,
    /// How often a worker was killed.
    pub kills: usize,
}

impl Verdict {
    /// Judges the messages that were sent, by the lines of a journal in the order in which they
    /// were written.
    ///
    /// # Panics
    ///
    /// Panics if an attempt ends that has not begun, or if a key has not gone on after a fault.
    pub fn judge(sent: &[Sent], lines: &[Entry]) -> Self {
        let mut court = Court::default();
        for line in lines {
            court.hear(line);
        }
        let story = Story::read(court.steps.iter().map(|(step, _)| Some(*step)));
        let is = |id: u64, answer| {
            let sent = sent.get(id as usize);
            sent.is_some_and(|sent| sent.answer == answer)
        };
        let accepted = |step: &Step| is(step.id, Answer::Accepted).then_some(*step);
        let steps = court.steps.iter().map(|(step, _)| accepted(step));
        let accepted = Story::read(steps);
        let mut passing = accepted.begun_out_of_order(|id| id);
        // One that has begun and was not done may be passed too.
        passing.extend(accepted.done_out_of_order(|id| id));
        passing.sort_unstable();
        passing.dedup();
        let count = |answer| sent.iter().filter(|sent| sent.answer == answer).count();
        let all = || 0..sent.len() as u64;
        let attempted: HashSet<u64> = story.attempts().iter().map(|one| one.id).collect();
        let is_known = |id: &u64| (*id as usize) < sent.len() && !is(*id, Answer::Refused);
        Self {
            answers: [Answer::Accepted, Answer::Refused, Answer::Unknown].map(count),
            done: story.done(),
            lost: story.lost(all().filter(|id| is(*id, Answer::Accepted))),
            invented: attempted.into_iter().filter(|id| !is_known(id)).collect(),
            passing,
            overlapping: story
                .overlaps()
                .filter(|pair| court.is_judged(pair))
                .collect(),
            stale: court.stale,
            ages: court.ages(&story),
            pauses: court.pauses(sent),
            kills: court.kills,
        }
    }

    /// Fails if something was lost, or if the order or the exclusion of a key was broken.
    ///
    /// # Panics
    ///
    /// Panics then, with what was broken.
    pub fn assert_nothing_lost(&self) {
        assert!(self.lost.is_empty(), "lost: {:?}", self.lost);
        self.assert_in_order();
    }

    /// Fails if the order or the exclusion of a key was broken.
    ///
    /// # Panics
    ///
    /// Panics then, with what was broken.
    pub fn assert_in_order(&self) {
        let (passing, overlapping) = (&self.passing, &self.overlapping);
        assert!(self.invented.is_empty(), "invented: {:?}", self.invented);
        assert!(passing.is_empty(), "passing: {passing:?}");
        assert!(overlapping.is_empty(), "overlapping: {overlapping:?}");
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [accepted, refused, unknown] = self.answers;
        let seconds = |of: &[Duration], share| quantile(of, share).as_secs_f64();
        write!(
            f,
            "{} faults, {} workers killed; {accepted} accepted, {refused} refused, {unknown} \
             unknown; {} lost, {} overlapping, {} passing, {} stale; {} repeated, done before the \
             fault (half, 99 %, all): {:.2} s, {:.2} s, {:.2} s; goes on after (half, all): {:.1} \
             s, {:.1} s",
            self.pauses.len(),
            self.kills,
            self.lost.len(),
            self.overlapping.len(),
            self.passing.len(),
            self.stale,
            self.ages.len(),
            seconds(&self.ages, 50),
            seconds(&self.ages, 99),
            seconds(&self.ages, 100),
            seconds(&self.pauses, 50),
            seconds(&self.pauses, 100),
        )
    }
}

/// The value of an ascending list that this share of it, in percent, does not exceed.
fn quantile(ascending: &[Duration], share: usize) -> Duration {
    let place = (ascending.len() * share).div_ceil(100).saturating_sub(1);
    ascending.get(place).copied().unwrap_or_default()
}

/// Returns when the last of these keys went on: when a message of it was done that was sent after
/// this time, and accepted. `None` if one has not.
pub(crate) fn all_go_on(
    sent: &[Sent],
    done_at: &HashMap<u64, Duration>,
    since: Duration,
) -> Option<Duration> {
    let mut of_key: HashMap<u64, Option<Duration>> = HashMap::new();
    for (id, message) in sent.iter().enumerate() {
        let first = of_key.entry(message.key).or_default();
        if message.at > since
            && message.answer == Answer::Accepted
            && let Some(done) = done_at.get(&(id as u64))
        {
            *first = Some(first.map_or(*done, |first| first.min(*done)));
        }
    }
    let firsts: Option<Vec<_>> = of_key.into_values().collect();
    firsts?.into_iter().max()
}

/// An attempt that has not ended.
struct Open {
    worker: u32,
    id: u64,
    key: u64,
    token: u64,
}

impl Open {
    /// Its worker, its message and its token.
    fn own(&self) -> (u32, u64, u64) {
        (self.worker, self.id, self.token)
    }
}

/// What is read from the lines.
#[derive(Default)]
struct Court {
    /// What the sink has accepted, with its time.
    steps: Vec<(Step, Duration)>,
    open: Vec<Open>,
    /// Attempts that the sink has refused, and that have not ended: each with its worker, its
    /// message and its token.
    refused: Vec<(u32, u64, u64)>,
    highest: HashMap<u64, u64>,
    /// From which step on there is which history, or none.
    histories: Vec<(usize, bool)>,
    faults: Vec<Duration>,
    /// With the kills of workers.
    interruptions: Vec<Duration>,
    stale: usize,
    kills: usize,
}

impl Court {
    fn hear(&mut self, line: &Entry) {
        let worker = line.process;
        let [key, id, token] = line.numbers;
        match Event::of(line) {
            Event::Start => self.start(
                line,
                Open {
                    worker,
                    id,
                    key,
                    token,
                },
            ),
            Event::Done => self.end(line, What::Done),
            Event::Dropped => self.end(line, What::Broken),
            Event::Killed => {
                self.kills += 1;
                self.interruptions.push(line.at);
                self.break_all(line.at, |open| u64::from(open.worker) == key);
                self.refused
                    .retain(|(worker, ..)| u64::from(*worker) != key);
            }
            Event::Fault => self.fault(line.at),
            Event::Lossy => {
                self.fault(line.at);
                self.histories.push((self.steps.len(), false));
            }
            Event::History => {
                self.histories.push((self.steps.len(), true));
                self.highest.clear();
            }
        }
    }

    fn fault(&mut self, at: Duration) {
        self.faults.push(at);
        self.interruptions.push(at);
    }

    fn start(&mut self, line: &Entry, open: Open) {
        let is_in_history = self.histories.last().is_none_or(|(_, is)| *is);
        if is_in_history {
            let highest = self.highest.entry(open.key).or_insert(open.token);
            if open.token < *highest {
                self.stale += 1;
                self.refused.push(open.own());
                return;
            }
            *highest = open.token;
            let lower = self.break_all(line.at, |other| {
                other.key == open.key && other.token < open.token && other.worker != open.worker
            });
            self.stale += lower.len();
            self.refused.extend(lower);
        }
        self.step(&open, What::Start, line.at);
        self.open.push(open);
    }

    fn end(&mut self, line: &Entry, what: What) {
        let [_, id, token] = line.numbers;
        let own = (line.process, id, token);
        let mut open = self.open.iter();
        if let Some(place) = open.position(|open| open.own() == own) {
            let open = self.open.swap_remove(place);
            self.step(&open, what, line.at);
            return;
        }
        let place = self.refused.iter().position(|refused| *refused == own);
        self.refused
            .swap_remove(place.unwrap_or_else(|| panic!("{line:?} has not begun")));
    }

    /// Ends the open attempts of which this is so. Returns them.
    fn break_all(&mut self, at: Duration, is_so: impl Fn(&Open) -> bool) -> Vec<(u32, u64, u64)> {
        let broken: Vec<Open> = self.open.extract_if(.., |open| is_so(open)).collect();
        for open in &broken {
            self.step(open, What::Broken, at);
        }
        broken.iter().map(Open::own).collect()
    }

    fn step(&mut self, of: &Open, what: What, at: Duration) {
        let step = Step {
            worker: of.worker,
            key: of.key,
            id: of.id,
            what,
        };
        self.steps.push((step, at));
    }

    /// Whether both attempts began in one history.
    fn is_judged(&self, (one, other): &(Attempt, Attempt)) -> bool {
        let of = |attempt: &Attempt| {
            self.histories
                .partition_point(|(from, _)| *from <= attempt.start)
        };
        let history = of(one);
        let is_one = history == 0 || self.histories[history - 1].1;
        is_one && history == of(other)
    }

    fn ages(&self, story: &Story) -> Vec<Duration> {
        let age = |(done, again): (Attempt, Attempt)| {
            let at = |place: usize| self.steps[place].1;
            let (done, again) = (at(done.end.unwrap_or(done.start)), at(again.start));
            let before = self.interruptions.iter().filter(|fault| **fault <= again);
            let fault = before.max().copied().unwrap_or_default();
            fault.saturating_sub(done)
        };
        let mut ages: Vec<_> = story.repeats().map(age).collect();
        ages.sort_unstable();
        ages
    }

    fn pauses(&self, sent: &[Sent]) -> Vec<Duration> {
        let mut done_at = HashMap::new();
        for (step, at) in &self.steps {
            if step.what == What::Done {
                done_at.entry(step.id).or_insert(*at);
            }
        }
        let pause = |fault: &Duration| {
            let ended = all_go_on(sent, &done_at, *fault);
            ended.expect("every key goes on after a fault") - *fault
        };
        let mut pauses: Vec<_> = self.faults.iter().map(pause).collect();
        pauses.sort_unstable();
        pauses
    }
}
