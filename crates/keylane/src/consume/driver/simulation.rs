//! Random runs of the core against a model of a source and of an engine, without a task.
//!
//! All that happens is chosen by a list of numbers, so a run that fails can be shrunk. The model
//! does what the task does, at the same places; what it asserts are the guarantees at the head of
//! `core/mod.rs`, and that a driver which is asked to stop comes to its end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use keylane_rt::clock::Instant;
use keylane_source::{Features, Generation, Outcome, Settlement, SourceError};
use proptest::prelude::*;

use super::super::control::Command;
use super::super::report::IntakeStats;
use super::super::settings::IntakeSettings;
use super::core::{Action, Call, Core, InletView, SWEEP, Terms, Trouble, Turn, Unplaced};
use crate::engine::Revoked;
use crate::watching::SourceEvent;

const MS: Duration = Duration::from_millis(1);
const CONFIRM_EVERY: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_millis(900);

/// How long after its deadline a revocation may go on: until attempts are dropped, until that is
/// given up, and until the driver has looked.
const SLACK: Duration = Duration::from_millis(260);

/// The numbers that decide a run. At their end everything goes well.
struct Choices(std::vec::IntoIter<u8>);

impl Choices {
    /// A number below this one.
    fn below(&mut self, most: usize) -> usize {
        usize::from(self.0.next().unwrap_or(0)) % most.max(1)
    }

    /// Happens once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }
}

/// Where a message is that was handed over and has not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the lanes.
    Inlet,
    Parked,
    InFlight,
    /// As before, and its handler blocks the thread.
    Blocked,
    /// It has settled, and the driver has not read it.
    Outbox(Outcome),
    /// It cannot be placed, or came too late.
    Refused,
}

/// What the source knows of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Live,
    /// It waits for a release since then.
    Revoked(Instant),
    Over,
}

/// A message that is here.
struct Message {
    position: u32,
    place: Place,
    mark: Revoked,
    recalled: bool,
}

/// The source, and what it was told.
#[derive(Default)]
struct SourceModel {
    is_open: bool,
    is_at_end: bool,
    /// When all generations were over for the last time.
    failed_at: Option<Instant>,
    generations: BTreeMap<u64, Standing>,
    /// The generation of each position.
    positions: Vec<u64>,
    told: BTreeMap<u32, Outcome>,
    /// Positions that were told since the last confirmation, the first of them at this time.
    unconfirmed: Vec<u32>,
    unconfirmed_since: Option<Instant>,
    acked: u64,
}

impl SourceModel {
    fn standing(&self, position: u32) -> Standing {
        self.generations[&self.positions[position as usize]]
    }

    /// All generations are over, and what is not confirmed comes again.
    fn fail(&mut self, now: Instant) {
        self.is_open = false;
        self.failed_at = Some(now);
        for standing in self.generations.values_mut() {
            *standing = Standing::Over;
        }
        self.acked -= self.unconfirmed_acks();
        self.unconfirmed.clear();
        self.unconfirmed_since = None;
    }

    fn unconfirmed_acks(&self) -> u64 {
        let acks = self.unconfirmed.iter();
        let acks = acks.filter(|position| is_ack(self.told[position]));
        acks.count() as u64
    }

    fn settle(&mut self, told: &[Settlement<u32>], now: Instant) {
        assert!(self.is_open, "a closed source is told {told:?}");
        for Settlement {
            position, outcome, ..
        } in told
        {
            let standing = self.standing(*position);
            assert_ne!(
                standing,
                Standing::Over,
                "{position} is told, and it is over"
            );
            let before = self.told.insert(*position, *outcome);
            assert_eq!(before, None, "{position} is told twice");
            self.unconfirmed.push(*position);
            self.unconfirmed_since.get_or_insert(now);
            self.acked += u64::from(is_ack(*outcome));
        }
    }
}

/// Whether it counts as acked: not a dead letter, which has a count of its own.
fn is_ack(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Done | Outcome::Discarded)
}

struct World {
    choices: Choices,
    now: Instant,
    core: Core<u32>,
    most_held: usize,
    has_guard: bool,
    within: Duration,
    source: SourceModel,
    /// By their slots.
    messages: BTreeMap<u32, Message>,
    inlet: VecDeque<u32>,
    /// Messages that were pushed and not taken in.
    unread: Vec<u32>,
    stops: bool,
    /// When nothing starts any more.
    hand_back_at: Option<Instant>,
    is_closed: bool,
    /// At the end, whether what has not started does so, and whether another stop comes sooner.
    starts_all: bool,
    stops_twice: bool,
    /// Attempts of a revocation have not ended in time: now, and ever.
    is_overdue: bool,
    was_overdue: bool,
}

impl World {
    fn new(numbers: Vec<u8>) -> Self {
        let mut choices = Choices(numbers.into_iter());
        let now = Instant::now();
        let most_held = 1 + choices.below(20);
        let within = [Duration::ZERO, 100 * MS, Duration::MAX][choices.below(3)];
        let settings = IntakeSettings::new()
            .held(most_held)
            .revoke_within(within)
            .confirm_every(CONFIRM_EVERY);
        let has_guard = choices.below(3) == 1;
        let mut features = Features::new().nack();
        if choices.below(2) == 1 {
            features = features.lease(LEASE);
        }
        let terms = Terms {
            settings,
            most_held,
            features,
            has_guard,
        };
        Self {
            starts_all: choices.below(2) == 0,
            stops_twice: choices.below(2) == 0,
            choices,
            now,
            core: Core::new(terms, now),
            most_held,
            has_guard,
            within,
            source: SourceModel::default(),
            messages: BTreeMap::new(),
            inlet: VecDeque::new(),
            unread: Vec::new(),
            stops: false,
            hand_back_at: None,
            is_closed: false,
            is_overdue: false,
            was_overdue: false,
        }
    }

    /// A whole run: what the numbers say, and then to the end.
    fn run(mut self) {
        while self.choices.0.len() > 0 && !self.is_over() {
            self.turn();
            self.step();
        }
        self.command(Command::Stop(Some(self.now + 50 * MS)));
        if self.stops_twice {
            self.command(Command::Stop(Some(self.now + 10 * MS)));
        }
        for _ in 0..2_000 {
            self.turn();
            if self.is_over() {
                return self.finish();
            }
            if self.starts_all {
                self.place();
                (0..4).for_each(|_| self.start());
            }
            self.end_attempts();
            self.read_news();
            self.wake();
        }
        panic!("it does not come to its end: {:?}", self.core);
    }

    fn is_over(&self) -> bool {
        self.core.is_over() && self.inlet.is_empty() && self.unread.is_empty()
    }

    /// What the task does before it waits.
    fn turn(&mut self) {
        match self.is_closed {
            true => self.core.closed(self.now),
            false => self.core.open_if_due(self.now),
        }
        self.carry_out();
        self.take_in();
        if self.is_closed {
            self.core.closed(self.now);
            self.carry_out();
        }
    }

    /// One thing happens.
    fn step(&mut self) {
        let waits = self.waits();
        self.core.woke(self.now);
        match self.choices.below(22) {
            0..=3 => self.receive(&waits),
            4..=5 => self.place(),
            6..=7 => self.start(),
            8..=10 => self.end_one(),
            11..=13 => self.read_news(),
            14..=15 => {
                let times = [1, 1, 4, 40][self.choices.below(4)];
                (0..times).for_each(|_| self.wake());
            }
            16 => self.revoke(&waits),
            17 => self.recall(&waits),
            18 => self.say(&waits),
            19 => self.block(),
            20 => self.use_handle(),
            _ => self.pass(waits.wake_at),
        }
        self.carry_out();
    }

    fn waits(&mut self) -> Turn {
        let view = InletView {
            len: self.inlet.len(),
            deferred: 0,
            is_closed: self.is_closed,
        };
        let turn = self.core.waits(view, self.now);
        let held = self.messages.len();
        assert!(
            held <= self.most_held && held + turn.room <= self.most_held,
            "{held} are held, and there is room for {} of {}",
            turn.room,
            self.most_held
        );
        assert!(
            turn.room == 0 || !(self.stops || self.is_closed),
            "it stops"
        );
        let is_short = |at| at <= self.now + MS;
        let is_in_batches = turn.least > 1;
        assert!(
            !is_in_batches || turn.wake_at.is_some_and(is_short),
            "a batch waits for ever"
        );
        let asks = self.source.is_open && !self.source.is_at_end;
        assert_eq!(turn.receives, asks, "whether the source is asked");
        turn
    }

    fn receive(&mut self, turn: &Turn) {
        if !turn.receives {
            return;
        }
        let live = self.source.generations.iter();
        let live = live.filter(|(_, standing)| **standing == Standing::Live);
        let live: Vec<u64> = live.map(|(number, _)| *number).collect();
        let most = turn.room.min(4);
        for _ in 0..self.choices.below(most + 1) {
            let generation = live[self.choices.below(live.len())];
            self.unread.push(self.source.positions.len() as u32);
            self.source.positions.push(generation);
        }
        if self.unread.is_empty() {
            return;
        }
        self.core.heard(self.now);
        // Something else comes before they are taken in.
        match self.choices.below(12) {
            9 => self.use_handle(),
            10 => self.read_news(),
            11 => {
                self.source.fail(self.now);
                self.core.failed(&trouble(), self.now);
            }
            _ => {}
        }
    }

    /// As `Machine::take_in`.
    fn take_in(&mut self) {
        if self.unread.is_empty() {
            return;
        }
        let (first, mut refused) = (self.unread[0], 0);
        for position in std::mem::take(&mut self.unread) {
            let generation = Generation(self.source.positions[position as usize]);
            let slot = self.core.received(position, generation, None, 1, 0);
            let slot = slot.expect("there are few");
            let is_placed = !self.core.phase().stops() && !self.choices.once_in(16);
            let place = if is_placed {
                Place::Inlet
            } else {
                Place::Refused
            };
            let message = Message {
                position,
                place,
                mark: Revoked::No,
                recalled: false,
            };
            let before = self.messages.insert(slot, message);
            assert!(before.is_none(), "slot {slot} is not free");
            match is_placed {
                true => self.inlet.push_back(slot),
                false => {
                    refused += 1;
                    self.core.refused(slot, self.now);
                }
            }
        }
        self.core.took_in(refused, 0, self.now);
        self.carry_out();
        let mut here = self.messages.values();
        let late = here.find(|message| message.position >= first);
        assert!(
            !self.stops || late.is_none(),
            "it stops, and keeps what comes too late"
        );
    }

    fn place(&mut self) {
        for _ in 0..=self.choices.below(4).max(usize::from(self.stops)) {
            if let Some(slot) = self.inlet.pop_front() {
                self.message(slot).place = Place::Parked;
            }
        }
    }

    fn message(&mut self, slot: u32) -> &mut Message {
        self.messages.get_mut(&slot).expect("it is here")
    }

    /// One of the slots at such a place.
    fn choose(&mut self, is_there: impl Fn(Place) -> bool) -> Option<u32> {
        let slots = self.messages.iter();
        let slots = slots.filter(|(_, message)| is_there(message.place));
        let slots: Vec<u32> = slots.map(|(slot, _)| *slot).collect();
        let at = self.choices.below(slots.len());
        slots.get(at).copied()
    }

    /// A runner takes a message, and looks at its mark if it is to.
    fn start(&mut self) {
        let Some(slot) = self.choose(|place| place == Place::Parked) else {
            return;
        };
        let looks = self.core.guards_starts();
        let position = self.message(slot).position;
        let standing = self.source.standing(position);
        let message = self.message(slot);
        let is_marked = message.mark > Revoked::No;
        assert!(looks || !is_marked, "{position} is marked, and starts");
        if is_marked {
            message.place = returned();
            return;
        }
        assert_eq!(
            standing,
            Standing::Live,
            "{position} starts, and its generation ends"
        );
        assert!(!message.recalled, "{position} starts, and is recalled");
        message.place = Place::InFlight;
    }

    fn block(&mut self) {
        if let Some(slot) = self.choose(|place| place == Place::InFlight) {
            self.message(slot).place = Place::Blocked;
        }
    }

    fn end_one(&mut self) {
        let runs = |place| matches!(place, Place::InFlight | Place::Blocked);
        if let Some(slot) = self.choose(runs) {
            let outcome = match self.choices.below(5) {
                0 | 1 => Outcome::Done,
                2 => Outcome::DeadLettered,
                3 => Outcome::Discarded,
                _ => Outcome::Returned { attempts: 1 },
            };
            self.message(slot).place = Place::Outbox(outcome);
        }
    }

    fn end_attempts(&mut self) {
        for message in self.messages.values_mut() {
            if matches!(message.place, Place::InFlight | Place::Blocked) {
                message.place = Place::Outbox(Outcome::Done);
            }
        }
    }

    /// A message has settled, and the engine forgets what it knew of its slot.
    fn forget(&mut self, slot: u32) {
        let message = self.messages.remove(&slot).expect("it is here");
        let is_known = message.mark == Revoked::No || self.core.ledger.is_marked(slot);
        assert!(is_known, "{} leaves a mark behind", message.position);
    }

    fn read_news(&mut self) {
        let news = self.messages.iter();
        let news = news.filter_map(|(slot, message)| match message.place {
            Place::Outbox(outcome) => Some((*slot, outcome)),
            _ => None,
        });
        let news: Vec<_> = news.collect();
        for (slot, _) in &news {
            self.forget(*slot);
        }
        let trouble = self.choices.once_in(40).then(trouble);
        let now = self.now;
        self.core.settled(news.into_iter(), trouble, now);
        self.carry_out();
    }

    /// The clock goes to the next moment at which something is due.
    fn wake(&mut self) {
        let Some(at) = self.waits().wake_at else {
            return;
        };
        self.now = self.now.max(at);
        // Once more if the source was opened meanwhile, and has to be asked for something.
        for _ in 0..2 {
            self.core.woke(self.now);
            self.core.timer(self.now);
            self.carry_out();
            self.check_times();
            self.core.open_if_due(self.now);
            self.carry_out();
        }
        let next = self.waits().wake_at;
        assert!(
            next.is_none_or(|next| next > self.now),
            "it wakes again at once"
        );
    }

    /// Some time passes, at most to the next moment at which something is due.
    fn pass(&mut self, wake_at: Option<Instant>) {
        let later = self.now + (1 + self.choices.below(40) as u32) * MS;
        self.now = wake_at.map_or(later, |at| later.min(at.max(self.now)));
    }

    /// What must have happened by now.
    fn check_times(&self) {
        if self.hand_back_at.is_some_and(|at| at <= self.now) {
            let mut here = self.messages.values();
            let stays = here.find(|message| matches!(message.place, Place::Inlet | Place::Parked));
            assert!(
                stays.is_none_or(|stays| stays.mark > Revoked::No),
                "it does not go back"
            );
        }
        let since = self.source.unconfirmed_since;
        let is_late = since.is_some_and(|since| since + CONFIRM_EVERY <= self.now);
        assert!(!is_late, "nothing was confirmed in time");
        let has_looked = |at| at + SWEEP <= self.now;
        let has_looked = self.source.failed_at.is_none_or(has_looked);
        for (number, standing) in &self.source.generations {
            if *standing == Standing::Over && self.has_guard && has_looked {
                self.assert_dropped(*number);
            }
            let Standing::Revoked(since) = *standing else {
                continue;
            };
            let Some(drop_at) = since.checked_add(self.within) else {
                continue;
            };
            assert!(
                self.now < drop_at + SLACK,
                "{number} is not released in time"
            );
            if self.now >= drop_at + SWEEP {
                self.assert_dropped(*number);
            }
        }
    }

    /// The attempts of a generation are dropped.
    fn assert_dropped(&self, generation: u64) {
        for message in self.messages.values() {
            let runs = matches!(message.place, Place::InFlight | Place::Blocked);
            let is_theirs = self.source.positions[message.position as usize] == generation;
            assert!(
                !(runs && is_theirs) || message.mark == Revoked::InFlight,
                "{} runs on",
                message.position
            );
        }
    }

    fn revoke(&mut self, turn: &Turn) {
        if !turn.receives {
            return;
        }
        let at = self.choices.below(self.source.generations.len());
        let Some((number, standing)) = self.source.generations.iter_mut().nth(at) else {
            return;
        };
        let (number, before) = (*number, *standing);
        if before == Standing::Over {
            return;
        }
        let is_told = before == Standing::Live && self.choices.below(2) == 0;
        *standing = match is_told {
            true => Standing::Revoked(self.now),
            false => Standing::Over,
        };
        // The next one, so that something goes on.
        let next = self.source.generations.len() as u64;
        self.source.generations.insert(next, Standing::Live);
        self.core.heard(self.now);
        let theirs = vec![Generation(number)];
        match is_told {
            true => self.core.revoked(theirs, self.now),
            false => self.core.lost(theirs, self.now),
        }
        self.carry_out();
        if !is_told {
            self.assert_dropped(number);
        }
    }

    fn recall(&mut self, turn: &Turn) {
        if !turn.receives {
            return;
        }
        let Some(slot) = self.choose(|place| !matches!(place, Place::Outbox(_))) else {
            return;
        };
        let position = self.message(slot).position;
        self.message(slot).recalled = self.source.standing(position) == Standing::Live;
        self.core.heard(self.now);
        self.core.recalled(&[position], self.now);
    }

    /// The source says something without messages.
    fn say(&mut self, turn: &Turn) {
        if !turn.receives {
            return;
        }
        self.core.heard(self.now);
        match self.choices.below(20) {
            0..=16 => self.core.idle(),
            17..=18 => {
                self.source.fail(self.now);
                self.core.failed(&trouble(), self.now);
            }
            _ => {
                self.source.is_at_end = true;
                self.stops = true;
                self.core.ended();
            }
        }
    }

    fn use_handle(&mut self) {
        match self.choices.below(32) {
            0..=8 => self.command(Command::Pause),
            9..=28 => self.command(Command::Resume),
            29 => self.command(Command::Stop(None)),
            30 => {
                let at = self.now + self.choices.below(100) as u32 * MS;
                self.command(Command::Stop(Some(at)));
            }
            _ => {
                // Its runners go on; what is in no lane does not go in.
                self.is_closed = true;
                self.stops = true;
                self.core.closed(self.now);
            }
        }
    }

    fn command(&mut self, command: Command) {
        if let Command::Stop(at) = command {
            self.stops = true;
            self.hand_back_at = self.hand_back_at.into_iter().chain(at).min();
        }
        self.core.command(command);
        self.carry_out();
    }

    /// As the task does it.
    fn carry_out(&mut self) {
        while let Some(action) = self.core.next_action() {
            match action {
                Action::Call(Call::Open) => self.open(),
                Action::Call(call) => self.call(call),
                action => self.perform(action),
            }
            self.check_sum();
        }
        assert_eq!(self.core.phase().stops(), self.stops, "whether it stops");
        assert_eq!(
            self.core.phase().is_open(),
            self.source.is_open,
            "whether it is open"
        );
        let stats = self.check_sum();
        assert_eq!(stats.held, self.messages.len(), "what is held");
        let received = self.source.positions.len() - self.unread.len();
        assert_eq!(stats.received, received as u64, "what is received");
        assert_eq!(stats.acked, self.source.acked, "what is acked");
        assert_eq!(
            self.core.ledger.unconfirmed(),
            self.source.unconfirmed_acks()
        );
        for message in self.messages.values_mut() {
            if message.place == Place::InFlight && message.mark == Revoked::InFlight {
                message.place = returned();
            }
        }
        for message in self.messages.values() {
            let goes = message.mark > Revoked::No;
            let goes = goes || self.source.standing(message.position) != Standing::Live;
            let waits = matches!(message.place, Place::Inlet | Place::Parked | Place::Refused);
            assert!(!(goes && waits), "{} does not go back", message.position);
        }
    }

    fn check_sum(&self) -> IntakeStats {
        let mut stats = IntakeStats::default();
        self.core.show(&mut stats);
        let gone = stats.acked + stats.dead_lettered + stats.nacked + stats.given_back;
        assert_eq!(stats.received, gone + stats.held as u64, "{stats:?}");
        stats
    }

    fn open(&mut self) {
        assert!(!self.source.is_open, "an open source is opened");
        assert!(!self.stops, "it stops, and opens the source");
        while self.core.phase().is_opening() {
            match self.choices.below(8) {
                0..=3 => {
                    let next = self.source.generations.len() as u64;
                    self.source.generations.insert(next, Standing::Live);
                    self.source.generations.insert(next + 1, Standing::Live);
                    self.source.is_open = true;
                    self.core.opened(self.now);
                }
                4 => self.core.open_failed(&trouble(), self.now),
                5 => self.core.open_failed(&Trouble::Late(MS), self.now),
                6 => self.core.look(),
                _ => match self.choices.below(3) {
                    0 => self.core.command(Command::Pause),
                    1 => self.core.command(Command::Resume),
                    _ => {
                        self.stops = true;
                        self.core.command(Command::Stop(None));
                    }
                },
            }
            while let Some(action) = self.core.next_action() {
                self.perform(action);
            }
        }
    }

    fn call(&mut self, call: Call<u32>) {
        assert!(self.source.is_open, "a closed source is called: {call:?}");
        let answer = match self.choices.once_in(20) {
            false => Ok(()),
            true => Err(trouble()),
        };
        match &call {
            Call::Open => {}
            Call::Settle(told) => self.source.settle(told, self.now),
            Call::Confirm if answer.is_ok() => {
                self.source.unconfirmed.clear();
                self.source.unconfirmed_since = None;
            }
            Call::Confirm => {}
            Call::Release(generations) => self.release(generations),
            Call::Extend(positions) => {
                for position in positions {
                    assert!(
                        !self.source.told.contains_key(position),
                        "{position} has settled"
                    );
                    assert_ne!(self.source.standing(*position), Standing::Over);
                }
            }
            Call::Close => {
                assert!(self.messages.is_empty(), "it is closed with messages here");
            }
        }
        // The last confirmation is not asked for again, and the source is closed all the same.
        let is_last = matches!(call, Call::Confirm | Call::Close) && self.is_closing();
        if answer.is_err() && !is_last {
            self.source.fail(self.now);
        }
        self.core.answered(call, answer, self.now);
    }

    fn is_closing(&self) -> bool {
        self.core.phase().is_closing()
    }

    fn release(&mut self, generations: &[Generation]) {
        for Generation(number) in generations {
            let standing = self.source.generations.insert(*number, Standing::Over);
            assert!(
                matches!(standing, Some(Standing::Revoked(_))),
                "{number} is released: {standing:?}"
            );
            if self.is_overdue {
                continue;
            }
            let theirs = |position: &u32| self.source.positions[*position as usize] == *number;
            let untold = self
                .messages
                .values()
                .any(|message| theirs(&message.position));
            assert!(!untold, "{number} is released with messages here");
            let unconfirmed = self.source.unconfirmed.iter().any(theirs);
            assert!(!unconfirmed, "{number} is released before it is confirmed");
        }
        self.is_overdue = false;
    }

    fn perform(&mut self, action: Action<u32>) {
        match action {
            Action::Call(call) => panic!("a source that is being opened is called: {call:?}"),
            Action::Revoke { slots, how } => {
                for slot in slots {
                    assert!(self.core.guards_starts(), "no start looks at {slot}");
                    let message = self.message(slot);
                    message.mark = message.mark.max(how);
                }
            }
            Action::Sweep => {
                for message in self.messages.values_mut() {
                    if message.place == Place::Parked && message.mark > Revoked::No {
                        message.place = returned();
                    }
                }
            }
            Action::AskHeld(held) => {
                let lapsed = held.into_iter();
                let over = Standing::Over;
                let lapsed = lapsed.filter(|(_, position)| self.source.standing(*position) == over);
                let lapsed = lapsed.map(|(slot, _)| slot).collect();
                self.core.lapsed(lapsed);
            }
            Action::GiveBack(slots, unplaced) => self.give_back(slots, unplaced),
            Action::DropUnread => {
                self.source.fail(self.now);
                self.core.ledger.unread(self.unread.len());
                self.unread.clear();
            }
            Action::Serve => self.core.serve(self.now),
            Action::Fail(trouble) => {
                self.source.fail(self.now);
                self.core.failed(&trouble, self.now);
            }
            Action::Notify(SourceEvent::Overdue { .. }) => {
                (self.is_overdue, self.was_overdue) = (true, true);
            }
            _ => {}
        }
    }

    /// As `Machine::give_back`.
    fn give_back(&mut self, mut slots: Vec<u32>, unplaced: Unplaced) {
        for slot in &slots {
            let place = self.message(*slot).place;
            let is_end = self.is_closing();
            assert!(
                place == Place::Refused || is_end,
                "{slot} goes back from {place:?}"
            );
        }
        let core = &self.core;
        let chosen = |slot: &u32| match unplaced {
            Unplaced::None => false,
            Unplaced::Revoked => core.goes_back(Some(*slot)),
            Unplaced::All => true,
        };
        slots.extend(self.inlet.iter().copied().filter(chosen));
        self.inlet.retain(|slot| !slots.contains(slot));
        if slots.is_empty() {
            return;
        }
        for slot in &slots {
            self.forget(*slot);
        }
        let returned = |slot| (slot, Outcome::Returned { attempts: 0 });
        self.core
            .settled(slots.into_iter().map(returned), None, self.now);
    }

    /// Nothing is left: it ends, and nothing is forgotten.
    fn finish(mut self) {
        self.core.finish(self.now);
        self.carry_out();
        assert!(self.messages.is_empty(), "messages are left");
        for position in 0..self.source.positions.len() as u32 {
            let is_told = self.source.told.contains_key(&position);
            let is_over = self.source.standing(position) == Standing::Over;
            assert!(
                is_told || is_over || self.was_overdue,
                "the source is not told of {position}, and its generation goes on"
            );
        }
        for (number, standing) in &self.source.generations {
            let waits = matches!(standing, Standing::Revoked(_));
            assert!(!waits, "{number} is never released");
        }
    }
}

proptest! {
    #![proptest_config(testkit_cases::cases(3_000))]

    #[test]
    fn the_core_keeps_what_it_promises(numbers in prop::collection::vec(any::<u8>(), 0..900)) {
        World::new(numbers).run();
    }
}

fn trouble() -> Trouble {
    Trouble::Failed(SourceError::failed("a test"))
}

fn returned() -> Place {
    Place::Outbox(Outcome::Returned { attempts: 0 })
}
