//! The open messages of each raw key, and those that have to wait for them. Pure.
//!
//! A key is *blocked* from its first message that cannot be decoded on: that message waits until
//! everything before it has settled, and everything behind it waits, still raw, until its letter is
//! kept. A key that is not blocked only has a count.
//!
//! ```text
//!                  handed_over, settled: a count
//!  key ─► open ─────────────────────────────────► gone
//!           │ undecodable                  ▲
//!           ▼                              │ nothing behind
//!         letter ──► delivering ──► kept ──┤
//!           ▲   nothing is open            │ raw behind
//!           └────── undecodable ◄──── next_raw ────► handed_over
//! ```

use std::collections::{HashMap, VecDeque};

use keylane_rt::BuildPrehashed;

use crate::Generation;

/// What waits: `R` is a message that was not tried yet, `L` one that cannot be decoded.
#[derive(Debug)]
pub(super) enum Blocked<R, L> {
    /// Behind a letter.
    Raw(R),
    /// Waits until what is before it has settled.
    Letter(L),
    /// The first of its key. Its letter is being delivered.
    Delivering(L),
}

/// All keys with messages that are not settled, by their hash: two keys with one hash are one.
#[derive(Debug)]
pub(super) struct Table<R, L> {
    keys: HashMap<u64, Line<R, L>, BuildPrehashed>,
    /// Keys whose first blocked message is raw, to be decoded now. An entry that is not true any
    /// more is skipped.
    raws: VecDeque<u64>,
    /// Keys whose first blocked message is a letter, to be delivered now. As above.
    letters: VecDeque<u64>,
    blocked: usize,
}

/// The messages of one key.
#[derive(Debug)]
struct Line<R, L> {
    open: Open,
    blocked: VecDeque<Blocked<R, L>>,
}

/// How many messages were handed over and have not settled, by generation.
#[derive(Debug, Default)]
struct Open {
    generation: Generation,
    count: u32,
    /// Few keys have messages of more than one generation.
    others: Vec<(Generation, u32)>,
}

impl<R, L> Table<R, L> {
    pub(super) fn new() -> Self {
        Self {
            keys: HashMap::default(),
            raws: VecDeque::new(),
            letters: VecDeque::new(),
            blocked: 0,
        }
    }

    /// How many messages wait.
    #[inline]
    pub(super) fn blocked(&self) -> usize {
        self.blocked
    }

    /// Whether a message that comes now has to wait behind others of its key.
    #[inline]
    pub(super) fn blocks(&self, key: u64) -> bool {
        let line = || self.keys.get(&key);
        self.blocked > 0 && line().is_some_and(|line| !line.blocked.is_empty())
    }

    /// Whether anything of this key is here.
    pub(super) fn knows(&self, key: u64) -> bool {
        self.keys.contains_key(&key)
    }

    /// Keys of which something is here, or was handed over and has not settled.
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// A message that could be decoded was handed over.
    #[inline]
    pub(super) fn handed_over(&mut self, key: u64, generation: Generation) {
        let line = self.keys.entry(key).or_default();
        line.open.add(generation);
        if let Some(Blocked::Raw(_)) = line.blocked.front() {
            self.raws.push_back(key);
        }
    }

    /// A message that was handed over has settled.
    #[inline]
    pub(super) fn settled(&mut self, key: u64, generation: Generation) {
        let Some(line) = self.keys.get_mut(&key) else {
            return;
        };
        if !line.open.remove(generation) || !line.open.is_empty() {
            return;
        }
        match line.blocked.front() {
            None => {
                self.keys.remove(&key);
            }
            Some(Blocked::Letter(_)) => self.letters.push_back(key),
            Some(Blocked::Raw(_) | Blocked::Delivering(_)) => {}
        }
    }

    /// A message has come whose key is blocked.
    pub(super) fn push(&mut self, key: u64, raw: R) {
        let line = self.keys.entry(key).or_default();
        line.blocked.push_back(Blocked::Raw(raw));
        self.blocked += 1;
        if line.blocked.len() == 1 {
            self.raws.push_back(key);
        }
    }

    /// A message whose turn it is cannot be decoded: a new one of a key that is not blocked, or one
    /// from [`next_raw`](Self::next_raw).
    pub(super) fn undecodable(&mut self, key: u64, letter: L) {
        let line = self.keys.entry(key).or_default();
        line.blocked.push_front(Blocked::Letter(letter));
        self.blocked += 1;
        if line.open.is_empty() {
            self.letters.push_back(key);
        }
    }

    /// A raw message whose turn has come. It must be [handed over](Self::handed_over) or declared
    /// [undecodable](Self::undecodable) next.
    pub(super) fn next_raw(&mut self) -> Option<(u64, R)> {
        while let Some(key) = self.raws.pop_front() {
            let Some(line) = self.keys.get_mut(&key) else {
                continue;
            };
            if let Some(Blocked::Raw(raw)) =
                line.take_front(|first| matches!(first, Blocked::Raw(_)))
            {
                self.blocked -= 1;
                return Some((key, raw));
            }
        }
        None
    }

    /// A key whose letter is to be delivered now.
    pub(super) fn next_letter(&mut self) -> Option<u64> {
        while let Some(key) = self.letters.pop_front() {
            let Some(line) = self.keys.get_mut(&key) else {
                continue;
            };
            if !line.open.is_empty() {
                continue;
            }
            if let Some(Blocked::Letter(letter)) =
                line.take_front(|first| matches!(first, Blocked::Letter(_)))
            {
                line.blocked.push_front(Blocked::Delivering(letter));
                return Some(key);
            }
        }
        None
    }

    /// The letter of this key that is being delivered. `None`: it was taken back.
    pub(super) fn delivering(&mut self, key: u64) -> Option<&mut L> {
        match self.keys.get_mut(&key)?.blocked.front_mut()? {
            Blocked::Delivering(letter) => Some(letter),
            Blocked::Raw(_) | Blocked::Letter(_) => None,
        }
    }

    /// The letter of this key is durable: what is behind it goes on.
    pub(super) fn kept(&mut self, key: u64) -> Option<L> {
        let line = self.keys.get_mut(&key)?;
        let is_delivering = |first: &Blocked<R, L>| matches!(first, Blocked::Delivering(_));
        let Some(Blocked::Delivering(letter)) = line.take_front(is_delivering) else {
            return None;
        };
        self.blocked -= 1;
        match line.blocked.front() {
            Some(Blocked::Raw(_)) => self.raws.push_back(key),
            Some(_) => {}
            None if line.open.is_empty() => {
                self.keys.remove(&key);
            }
            None => {}
        }
        Some(letter)
    }

    /// Everything that waits.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Blocked<R, L>> {
        self.keys.values().flat_map(|line| &line.blocked)
    }

    /// Takes out what is chosen of all that waits.
    pub(super) fn extract(
        &mut self,
        mut chosen: impl FnMut(&Blocked<R, L>) -> bool,
    ) -> Vec<Blocked<R, L>> {
        let mut out = Vec::new();
        if self.blocked == 0 {
            return out;
        }
        for line in self.keys.values_mut() {
            for _ in 0..line.blocked.len() {
                match line.blocked.pop_front() {
                    Some(blocked) if chosen(&blocked) => out.push(blocked),
                    Some(blocked) => line.blocked.push_back(blocked),
                    None => {}
                }
            }
        }
        self.blocked -= out.len();
        self.look_again();
        out
    }

    /// Nothing more will be heard of what was handed over in these generations.
    pub(super) fn forget(&mut self, generations: &[Generation]) {
        for line in self.keys.values_mut() {
            line.open.forget(generations);
        }
        self.look_again();
    }

    /// Finds the keys that can go on, from the start.
    fn look_again(&mut self) {
        self.raws.clear();
        self.letters.clear();
        self.keys.retain(|key, line| {
            match line.blocked.front() {
                None => return !line.open.is_empty(),
                Some(Blocked::Raw(_)) => self.raws.push_back(*key),
                Some(Blocked::Letter(_)) if line.open.is_empty() => self.letters.push_back(*key),
                Some(Blocked::Letter(_) | Blocked::Delivering(_)) => {}
            }
            true
        });
    }
}

impl<R, L> Default for Line<R, L> {
    fn default() -> Self {
        Self {
            open: Open::default(),
            blocked: VecDeque::new(),
        }
    }
}

impl<R, L> Line<R, L> {
    fn take_front(&mut self, is_it: impl FnOnce(&Blocked<R, L>) -> bool) -> Option<Blocked<R, L>> {
        self.blocked.front().is_some_and(is_it).then_some(())?;
        self.blocked.pop_front()
    }
}

impl Open {
    fn is_empty(&self) -> bool {
        self.count == 0 && self.others.is_empty()
    }

    #[inline]
    fn add(&mut self, generation: Generation) {
        if self.count == 0 {
            self.generation = generation;
        }
        if self.generation == generation {
            self.count += 1;
            return;
        }
        match self.others.iter_mut().find(|other| other.0 == generation) {
            Some((_, count)) => *count += 1,
            None => self.others.push((generation, 1)),
        }
    }

    /// False if there is none of this generation.
    #[inline]
    fn remove(&mut self, generation: Generation) -> bool {
        if self.count > 0 && self.generation == generation {
            self.count -= 1;
            return true;
        }
        let at = self.others.iter().position(|other| other.0 == generation);
        let Some(at) = at else {
            return false;
        };
        self.others[at].1 -= 1;
        if self.others[at].1 == 0 {
            self.others.swap_remove(at);
        }
        true
    }

    fn forget(&mut self, generations: &[Generation]) {
        if generations.contains(&self.generation) {
            self.count = 0;
        }
        let others = &mut self.others;
        others.retain(|(generation, _)| !generations.contains(generation));
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const FIRST: Generation = Generation(1);
    const SECOND: Generation = Generation(2);

    #[test]
    fn a_letter_waits_for_what_is_before_it_and_holds_what_is_behind_it() {
        let mut table = Table::new();
        table.handed_over(7, FIRST);
        table.handed_over(7, FIRST);
        table.undecodable(7, "letter");
        assert!(table.blocks(7) && !table.blocks(8));
        table.push(7, "raw");
        table.settled(7, FIRST);
        assert_eq!((table.next_letter(), table.next_raw()), (None, None));
        table.settled(7, FIRST);
        assert_eq!((table.next_letter(), table.next_raw()), (Some(7), None));
        assert_eq!(table.next_letter(), None, "it is being delivered");
        assert_eq!(table.blocked(), 2);
        assert_eq!((table.kept(7), table.kept(7)), (Some("letter"), None));
        assert_eq!(table.next_raw(), Some((7, "raw")));
        table.handed_over(7, FIRST);
        assert!(!table.blocks(7) && table.knows(7));
        table.settled(7, FIRST);
        assert!(!table.knows(7));
        assert_eq!(table.blocked(), 0);
    }

    #[test]
    fn what_settles_twice_or_in_another_generation_frees_nothing() {
        let mut table: Table<(), _> = Table::new();
        table.handed_over(7, FIRST);
        table.handed_over(7, SECOND);
        table.undecodable(7, "letter");
        table.settled(7, FIRST);
        table.settled(7, FIRST);
        table.settled(7, Generation(3));
        table.settled(8, SECOND);
        assert_eq!(table.next_letter(), None);
        table.settled(7, SECOND);
        assert_eq!(table.next_letter(), Some(7));
    }

    #[test]
    fn a_generation_that_is_forgotten_holds_nothing_up() {
        let mut table: Table<(), _> = Table::new();
        table.handed_over(7, FIRST);
        table.handed_over(7, SECOND);
        table.handed_over(8, FIRST);
        table.undecodable(7, "letter");
        table.forget(&[FIRST]);
        assert!(!table.knows(8));
        assert_eq!(table.next_letter(), None);
        table.forget(&[SECOND]);
        assert_eq!(table.next_letter(), Some(7));
    }

    #[test]
    fn what_is_taken_out_lets_the_rest_of_its_key_go_on() {
        let mut table = Table::new();
        table.undecodable(7, 0);
        (1..4).for_each(|raw| table.push(7, raw));
        assert_eq!(table.next_letter(), Some(7));
        let out = table
            .extract(|blocked| matches!(blocked, Blocked::Delivering(_) | Blocked::Raw(1 | 3)));
        assert_eq!((out.len(), table.blocked()), (3, 1));
        assert!(table.delivering(7).is_none() && table.kept(7).is_none());
        assert_eq!(table.next_raw(), Some((7, 2)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A message comes: its key, its generation, whether it can be decoded.
        Come(u64, u64, bool),
        /// One of those that are handed over settles.
        Settle(usize),
        /// One of the letters that are being delivered is durable.
        Keep(usize),
        /// There is room for so many.
        Decode(usize),
        /// Letters that are due are delivered.
        Deliver,
        /// A generation ends, and is never heard of again.
        Lose(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..3_u64, 0..2_u64, any::<bool>())
                .prop_map(|(key, generation, fine)| Step::Come(key, generation, fine)),
            4 => any::<usize>().prop_map(Step::Settle),
            3 => any::<usize>().prop_map(Step::Keep),
            3 => (0..3_usize).prop_map(Step::Decode),
            2 => Just(Step::Deliver),
            1 => (0..2_u64).prop_map(Step::Lose),
        ];
        proptest::collection::vec(step, 0..60)
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum State {
        Raw,
        Undecodable,
        Open,
        Delivering,
        /// Settled, kept or lost.
        Gone,
    }

    /// A message of the naive model.
    #[derive(Clone, Copy, Debug)]
    struct Message {
        generation: Generation,
        fine: bool,
        state: State,
    }

    /// All messages of all keys that ever came, in their order.
    #[derive(Default)]
    struct Naive(BTreeMap<u64, Vec<Message>>);

    impl Naive {
        fn get(&mut self, (key, index): Id) -> &mut Message {
            &mut self.0.get_mut(&key).expect("it came")[index]
        }

        /// Whether a message may be decoded: nothing before it is raw, or a letter.
        fn may_decode(&self, (key, index): Id) -> bool {
            let before = &self.0[&key][..index];
            let passed = |message: &Message| matches!(message.state, State::Open | State::Gone);
            self.0[&key][index].state == State::Raw && before.iter().all(passed)
        }

        fn may_deliver(&self, (key, index): Id) -> bool {
            let before = &self.0[&key][..index];
            self.0[&key][index].state == State::Undecodable
                && before.iter().all(|message| message.state == State::Gone)
        }

        fn all(&self, chosen: impl Fn(Id, &Message) -> bool) -> Vec<Id> {
            let lines = self.0.iter();
            let all = lines.flat_map(|(key, line)| {
                let line = line.iter().enumerate();
                line.map(|(index, message)| ((*key, index), message))
            });
            let chosen = all.filter(|(id, message)| chosen(*id, message));
            chosen.map(|(id, _)| id).collect()
        }

        fn in_state(&self, state: State) -> Vec<Id> {
            self.all(|_, message| message.state == state)
        }
    }

    /// The key, and which of its messages.
    type Id = (u64, usize);

    /// A table and its model, side by side.
    struct Pair {
        table: Table<Id, Id>,
        naive: Naive,
    }

    impl Pair {
        fn decode(&mut self, id: Id) {
            let message = self.naive.get(id);
            if message.fine {
                message.state = State::Open;
                self.table.handed_over(id.0, message.generation);
            } else {
                message.state = State::Undecodable;
                self.table.undecodable(id.0, id);
            }
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Come(key, generation, fine) => {
                    let line = self.naive.0.entry(key).or_default();
                    let id = (key, line.len());
                    line.push(Message {
                        generation: Generation(generation),
                        fine,
                        state: State::Raw,
                    });
                    let may = self.naive.may_decode(id);
                    assert_eq!(self.table.blocks(key), !may, "{id:?}");
                    match may {
                        true => self.decode(id),
                        false => self.table.push(key, id),
                    }
                }
                Step::Settle(which) => {
                    let open = self.naive.in_state(State::Open);
                    if let Some(id) = pick(&open, which) {
                        let message = self.naive.get(id);
                        message.state = State::Gone;
                        self.table.settled(id.0, message.generation);
                    }
                }
                Step::Keep(which) => {
                    let delivering = self.naive.in_state(State::Delivering);
                    if let Some(id) = pick(&delivering, which) {
                        self.naive.get(id).state = State::Gone;
                        assert_eq!(self.table.delivering(id.0), Some(&mut id.clone()));
                        assert_eq!(self.table.kept(id.0), Some(id));
                    }
                }
                Step::Decode(room) => {
                    for _ in 0..room {
                        let may = self.naive.all(|id, _| self.naive.may_decode(id));
                        let Some((key, id)) = self.table.next_raw() else {
                            assert_eq!(may, []);
                            break;
                        };
                        assert!(key == id.0 && may.contains(&id), "{id:?} of {may:?}");
                        self.decode(id);
                    }
                }
                Step::Deliver => {
                    let mut due = self.naive.all(|id, _| self.naive.may_deliver(id));
                    while let Some(key) = self.table.next_letter() {
                        let id = *self.table.delivering(key).expect("it has just begun");
                        let at = due.iter().position(|due| *due == id);
                        due.swap_remove(at.expect("it is due"));
                        self.naive.get(id).state = State::Delivering;
                    }
                    assert_eq!(due, []);
                }
                Step::Lose(generation) => {
                    let lost = Generation(generation);
                    let waits =
                        |message: &Message| !matches!(message.state, State::Open | State::Gone);
                    let generation = |id: Id| self.naive.0[&id.0][id.1].generation;
                    let mut expected = self
                        .naive
                        .all(|_, message| message.generation == lost && waits(message));
                    let out = self
                        .table
                        .extract(|blocked| generation(blocked.id()) == lost);
                    let mut out: Vec<Id> = out.iter().map(Blocked::id).collect();
                    out.sort_unstable();
                    expected.sort_unstable();
                    assert_eq!(out, expected);
                    self.table.forget(&[lost]);
                    for message in self.naive.0.values_mut().flatten() {
                        if message.generation == lost {
                            message.state = State::Gone;
                        }
                    }
                }
            }
            let waiting = self
                .naive
                .all(|_, message| !matches!(message.state, State::Open | State::Gone));
            assert_eq!(self.table.blocked(), waiting.len());
            assert_eq!(self.table.iter().count(), waiting.len());
        }
    }

    impl Blocked<Id, Id> {
        fn id(&self) -> Id {
            match self {
                Self::Raw(id) | Self::Letter(id) | Self::Delivering(id) => *id,
            }
        }
    }

    fn pick(from: &[Id], which: usize) -> Option<Id> {
        from.get(which.checked_rem(from.len())?).copied()
    }

    proptest! {
        #![proptest_config(testkit_cases::cases(256))]

        /// The model looks at all messages that ever came for each question.
        #[test]
        fn the_table_is_a_list_of_all_messages_of_each_key(steps in steps()) {
            let mut pair = Pair {
                table: Table::new(),
                naive: Naive::default(),
            };
            for step in steps {
                pair.step(step);
            }
            // Nothing gets stuck, and nothing is left.
            while pair.table.knows(0) || pair.table.knows(1) || pair.table.knows(2) {
                let before = pair.naive.in_state(State::Gone).len();
                for step in [Step::Decode(1), Step::Deliver, Step::Keep(0), Step::Settle(0)] {
                    pair.step(step);
                }
                prop_assert!(pair.naive.in_state(State::Gone).len() > before);
            }
            let gone = pair.naive.in_state(State::Gone).len();
            prop_assert_eq!(gone, pair.naive.0.values().flatten().count());
        }
    }
}
