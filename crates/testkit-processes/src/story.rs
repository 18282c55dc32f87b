//! What workers did with messages.

use std::collections::{BTreeMap, HashMap};

/// What a worker did with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An attempt began.
    Start,
    /// It succeeded.
    Done,
    /// It failed, or was dropped.
    Broken,
}

/// One step of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The worker.
    pub worker: u32,
    /// The key of the message.
    pub key: u64,
    /// The message.
    pub id: u64,
    /// What happened to it.
    pub what: What,
}

/// One attempt of a worker at a message. A worker that was killed has attempts without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The worker.
    pub worker: u32,
    /// The key of the message.
    pub key: u64,
    /// The message.
    pub id: u64,
    /// The place of the step with which it began.
    pub start: usize,
    /// The place of the step with which it ended.
    pub end: Option<usize>,
    /// Whether it succeeded.
    pub is_done: bool,
}

impl Attempt {
    /// Whether it had ended before this place.
    fn has_ended(&self, place: usize) -> bool {
        self.end.is_some_and(|end| end < place)
    }
}

/// The attempts at all messages, in the order in which they began.
///
/// This finds what must not be, and what must have a reason, such as a worker that was killed. The
/// test knows the reasons. A place is the number of a step, counted from 0, with which the test
/// finds its own record of that step.
///
/// ```
/// use testkit_processes::{Step, Story, What};
///
/// let step = |worker, id, what| Some(Step { worker, key: 1, id, what });
/// let story = Story::read([
///     step(1, 1, What::Start),
///     step(2, 1, What::Start), // worker 1 was killed
///     step(2, 1, What::Done),
///     step(2, 2, What::Start),
/// ]);
/// assert_eq!(story.lost([1, 2]), [2]);
/// let (other, one) = story.overlaps().next().unwrap();
/// assert_eq!((other.worker, one.worker, one.start), (1, 2, 1));
/// assert_eq!(story.repeats().count(), 0);
/// ```
#[derive(Debug, Default)]
pub struct Story {
    attempts: Vec<Attempt>,
    /// The attempts at each message, as places in `attempts`.
    of_id: HashMap<u64, Vec<usize>>,
    /// The first attempt at each message that succeeded.
    done: HashMap<u64, Attempt>,
    /// The messages of each key, in the order in which they began or were done for the first time.
    begun: BTreeMap<u64, Vec<u64>>,
    done_of_key: BTreeMap<u64, Vec<u64>>,
}

impl Story {
    /// Reads the steps of all workers in their order. `None` is a step that is not about a message.
    ///
    /// # Panics
    ///
    /// Panics if an attempt ends that has not begun.
    pub fn read(steps: impl IntoIterator<Item = Option<Step>>) -> Self {
        let mut story = Self::default();
        // The attempts of each worker at each message that have not ended.
        let mut open: HashMap<(u32, u64), Vec<usize>> = HashMap::new();
        for (place, step) in steps.into_iter().enumerate() {
            let Some(step) = step else { continue };
            let open = open.entry((step.worker, step.id)).or_default();
            if step.what == What::Start {
                open.push(story.attempts.len());
                story.start(step, place);
            } else {
                let attempt = open.pop();
                let attempt = attempt.unwrap_or_else(|| panic!("{step:?} has not begun"));
                story.end(attempt, step, place);
            }
        }
        story
    }

    fn start(&mut self, step: Step, place: usize) {
        let of_id = self.of_id.entry(step.id).or_default();
        if of_id.is_empty() {
            self.begun.entry(step.key).or_default().push(step.id);
        }
        of_id.push(self.attempts.len());
        self.attempts.push(Attempt {
            worker: step.worker,
            key: step.key,
            id: step.id,
            start: place,
            end: None,
            is_done: false,
        });
    }

    fn end(&mut self, attempt: usize, step: Step, place: usize) {
        let attempt = &mut self.attempts[attempt];
        attempt.end = Some(place);
        attempt.is_done = step.what == What::Done;
        if attempt.is_done && !self.done.contains_key(&step.id) {
            self.done.insert(step.id, *attempt);
            self.done_of_key.entry(step.key).or_default().push(step.id);
        }
    }

    /// Returns all attempts.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Returns the attempts at the message of this one that began before it.
    pub fn before<'a>(&'a self, one: &Attempt) -> impl Iterator<Item = &'a Attempt> + use<'a> {
        let (of_id, start) = (&self.of_id[&one.id], one.start);
        let attempts = of_id.iter().map(|at| &self.attempts[*at]);
        attempts.take_while(move |other| other.start < start)
    }

    /// Returns how many messages were done.
    pub fn done(&self) -> usize {
        self.done.len()
    }

    /// Returns which of these messages were never done.
    pub fn lost(&self, sent: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let sent = sent.into_iter();
        sent.filter(|id| !self.done.contains_key(id)).collect()
    }

    /// Returns pairs of messages of one key, such that the first one began before the second one,
    /// and has a higher place. Only the first attempt at each message counts.
    pub fn begun_out_of_order<T: PartialOrd>(&self, place: impl Fn(u64) -> T) -> Vec<(u64, u64)> {
        out_of_order(&self.begun, place)
    }

    /// Returns pairs of messages of one key, such that the first one was done before the second
    /// one, and has a higher place. Only the first time that a message was done counts.
    pub fn done_out_of_order<T: PartialOrd>(&self, place: impl Fn(u64) -> T) -> Vec<(u64, u64)> {
        out_of_order(&self.done_of_key, place)
    }

    /// Returns each attempt that began while another one of its key had not ended, after that one.
    pub fn overlaps(&self) -> impl Iterator<Item = (Attempt, Attempt)> {
        let mut open: HashMap<u64, Vec<Attempt>> = HashMap::new();
        self.attempts.iter().flat_map(move |one| {
            let open = open.entry(one.key).or_default();
            open.retain(|other| !other.has_ended(one.start));
            let beside: Vec<_> = open.iter().map(|other| (*other, *one)).collect();
            open.push(*one);
            beside
        })
    }

    /// Returns each attempt that began when its message was done, after the first one that did it.
    pub fn repeats(&self) -> impl Iterator<Item = (Attempt, Attempt)> {
        self.attempts.iter().filter_map(|one| {
            let done = self.done.get(&one.id)?;
            done.has_ended(one.start).then_some((*done, *one))
        })
    }
}

fn out_of_order<T: PartialOrd>(
    keys: &BTreeMap<u64, Vec<u64>>,
    place: impl Fn(u64) -> T,
) -> Vec<(u64, u64)> {
    let pairs = keys.values().flat_map(|ids| ids.windows(2));
    let pairs = pairs.map(|pair| (pair[0], pair[1]));
    pairs
        .filter(|(one, next)| place(*one) > place(*next))
        .collect()
}
