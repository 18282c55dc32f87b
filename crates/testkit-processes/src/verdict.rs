//! The judge of workers on a server that fails over.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use crate::court::Court;
use crate::{Answer, Attempt, Entry, Sent, Step, Story};

/// What workers did with messages while their server failed over, in figures.
///
/// The effects of the workers are those that a sink accepts which compares tokens: from the start
/// of an attempt with a higher token of its key on, it refuses the lower ones of other workers. An
/// attempt that is refused is *stale*, and no attempt for what follows. Workers on a server without
/// tokens write the same number each time. A worker knows its own attempts: those of one key
/// overlap under any tokens.
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
    /// The longest time from the sending of a lost message to its fault; zero if all were sent
    /// while a fault was under way.
    pub lost_before: Duration,
    /// Messages that were done although no producer sent them, or the server had refused them.
    pub invented: Vec<u64>,
    /// Accepted messages of one key of which the first one began, or was done, before the second
    /// one, and was sent after it.
    pub passing: Vec<(u64, u64)>,
    /// Attempts at one key at the same time, of one history.
    pub overlapping: Vec<(Attempt, Attempt)>,
    /// How many attempts the sink has refused.
    pub stale: usize,
    /// How long before the last fault, or the kill of its worker, each message had been done that
    /// began again; zero if it was done after that. Ascending.
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
        let lost = story.lost(all().filter(|id| is(*id, Answer::Accepted)));
        Self {
            lost_before: court.before_fault(lost.iter().map(|id| sent[*id as usize].at)),
            lost,
            answers: [Answer::Accepted, Answer::Refused, Answer::Unknown].map(count),
            done: story.done(),
            invented: attempted.into_iter().filter(|id| !is_known(id)).collect(),
            passing,
            overlapping: story
                .overlaps()
                .filter(|pair| court.is_judged(pair))
                .collect(),
            stale: court.stale,
            ages: court.ages(&story),
            pauses: court.pauses(sent),
            kills: court.killed.len(),
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
             unknown; {} lost (sent {:.2} s before a fault at most), {} overlapping, {} passing, \
             {} stale; {} repeated, done before the fault (half, 99 %, all): {:.2} s, {:.2} s, \
             {:.2} s; goes on after (half, all): {:.1} s, {:.1} s",
            self.pauses.len(),
            self.kills,
            self.lost.len(),
            self.lost_before.as_secs_f64(),
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
pub(crate) fn quantile(ascending: &[Duration], share: usize) -> Duration {
    let place = (ascending.len() * share).div_ceil(100).saturating_sub(1);
    ascending.get(place).copied().unwrap_or_default()
}
