//! Judges a run by what lies on the disk: what was lost, reordered, repeated.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use super::client::Letter;
use super::crash::AtKill;
use super::plan::{Place, Plan};
use crate::ledger::{self, LedgerError, Record};
use crate::shop::MOST_ATTEMPTS;

/// What the demo knows beside the ledger. All orders of the plan were answered with 202.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) at_kill: AtKill,
    /// The dead letters when everything else was done.
    pub(crate) dead: Vec<Letter>,
    /// Those of them that were redriven then.
    pub(crate) redriven: Vec<u64>,
    /// The dead letters in the end.
    pub(crate) left: Vec<Letter>,
}

/// What was found. The lists are empty if all is well, but `repeated` and `interrupted`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Answered with 202, and neither paid nor a dead letter.
    pub(crate) lost: BTreeSet<Place>,
    /// Ids that were never sent.
    pub(crate) invented: BTreeSet<String>,
    /// Started, or paid, before an order of the same user that was accepted before it.
    pub(crate) reordered: BTreeSet<Place>,
    /// Paid more than once.
    pub(crate) paid_twice: BTreeSet<Place>,
    /// Started again after the kill, which had interrupted them.
    pub(crate) interrupted: BTreeSet<Place>,
    /// Started again after the kill, though they were done: the inbox did not know yet.
    pub(crate) repeated: BTreeSet<Place>,
    /// Started again though they must not be.
    pub(crate) outside: BTreeSet<Place>,
    /// How many had started and were not known to be done at the kill: no others may be started again.
    pub(crate) could_repeat: usize,
    /// Dead letters after another number of attempts than is allowed.
    pub(crate) wrong_letters: BTreeSet<Place>,
    pub(crate) dead: usize,
    pub(crate) redriven: usize,
    /// When each order was paid, in microseconds of the wall clock.
    pub(crate) paid_at: Vec<(Place, u64)>,
}

impl Verdict {
    pub(crate) fn is_good(&self) -> bool {
        let Self {
            lost,
            invented,
            reordered,
            paid_twice,
            outside,
            wrong_letters,
            ..
        } = self;
        let bad = [lost, reordered, paid_twice, outside, wrong_letters];
        invented.is_empty() && bad.iter().all(|bad| bad.is_empty())
    }

    /// Reads the ledger, and judges.
    pub(crate) fn of(evidence: &Evidence<'_>, ledger: &Path) -> Result<Self, LedgerError> {
        let mut lives = 0_u32;
        ledger::read(ledger, |record| {
            lives += u32::from(matches!(record, Record::Opened { .. }));
        })?;
        let mut judge = Judge::new(evidence, lives);
        ledger::read(ledger, |record| judge.see(&record))?;
        Ok(judge.verdict())
    }
}

/// What has been seen of an order.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// In which life an attempt has started last, and which attempt; 0 for none.
    life: u32,
    attempt: u32,
    /// Whether its last attempt has ended, as far as the ledger knows.
    ended: bool,
    paid: bool,
}

/// What has been seen of a user.
#[derive(Debug, Clone, Copy, Default)]
struct SeenUser {
    /// The order that has to start next.
    next: u32,
    /// The number that the next payment has to have.
    payments: u64,
    /// Behind the last order that was paid: as usual, and after it was redriven.
    paid: [u32; 2],
}

struct Judge<'a> {
    evidence: &'a Evidence<'a>,
    redriven: HashSet<Place>,
    letters: HashMap<Place, u32>,
    life: u32,
    /// The life that began after the kill.
    after_kill: u32,
    users: Vec<SeenUser>,
    orders: Vec<Vec<Seen>>,
    verdict: Verdict,
}

impl<'a> Judge<'a> {
    fn new(evidence: &'a Evidence<'a>, lives: u32) -> Self {
        let users = evidence.plan.users();
        let orders = users.iter();
        let mut judge = Self {
            evidence,
            redriven: HashSet::new(),
            letters: HashMap::new(),
            life: 0,
            after_kill: lives,
            users: vec![SeenUser::default(); users.len()],
            orders: orders
                .map(|user| vec![Seen::default(); user.orders as usize])
                .collect(),
            verdict: Verdict::default(),
        };
        for letter in &evidence.dead {
            if let Some(place) = judge.place(&letter.id) {
                judge.letters.insert(place, letter.attempts);
                if evidence.redriven.contains(&letter.sequence) {
                    judge.redriven.insert(place);
                }
            }
        }
        judge
    }

    fn see(&mut self, record: &Record<'_>) {
        match record {
            Record::Opened { .. } => {
                self.life += 1;
                if self.life == self.after_kill {
                    let waiting = self.evidence.at_kill.waiting.iter();
                    let started = waiting.filter(|place| self.seen(**place).life > 0);
                    self.verdict.could_repeat = started.count();
                }
            }
            Record::Started { id, attempt } => {
                if let Some(place) = self.place(id) {
                    self.started(place, *attempt);
                }
            }
            Record::Declined { id } | Record::Again { id } => {
                if let Some(place) = self.place(id) {
                    self.seen(place).ended = true;
                }
            }
            Record::Paid {
                id, number, at_us, ..
            } => {
                if let Some(place) = self.place(id) {
                    self.paid(place, *number);
                    self.verdict.paid_at.push((place, *at_us));
                }
            }
        }
    }

    fn started(&mut self, place: Place, attempt: u32) {
        let life = self.life;
        let is_redriven = self.redriven.contains(&place);
        let before = *self.seen(place);
        *self.seen(place) = Seen {
            life,
            attempt,
            ended: false,
            ..before
        };
        if before.life == 0 {
            let user = &mut self.users[place.user as usize];
            if place.number != user.next {
                self.verdict.reordered.insert(place);
            }
            user.next = user.next.max(place.number + 1);
        } else if before.life < life && !before.ended {
            self.verdict.interrupted.insert(place);
            self.must_wait(place);
        } else if before.life < life && before.paid {
            self.verdict.repeated.insert(place);
            self.must_wait(place);
        } else if before.life < life && !is_redriven {
            // Its retries go on behind the kill.
            self.must_wait(place);
        } else {
            // A retry has the next number, or begins anew because the order was redriven.
            let is_next = attempt == before.attempt + 1;
            if before.paid || !(is_next || is_redriven && attempt == 1) {
                self.verdict.outside.insert(place);
            }
        }
        if attempt > MOST_ATTEMPTS {
            self.verdict.outside.insert(place);
        }
    }

    /// A message that is started again was on the disk at the kill, and this is the life behind it.
    fn must_wait(&mut self, place: Place) {
        let waited = self.evidence.at_kill.waiting.contains(&place);
        if !waited || self.life != self.after_kill {
            self.verdict.outside.insert(place);
        }
    }

    fn paid(&mut self, place: Place, number: u64) {
        let is_redriven = self.redriven.contains(&place);
        let user = &mut self.users[place.user as usize];
        user.payments += 1;
        let behind = &mut user.paid[usize::from(is_redriven)];
        if place.number < *behind || number != user.payments {
            self.verdict.reordered.insert(place);
        }
        *behind = place.number + 1;
        let seen = self.seen(place);
        let twice = std::mem::replace(&mut seen.paid, true);
        seen.ended = true;
        if twice {
            self.verdict.paid_twice.insert(place);
        }
    }

    fn verdict(mut self) -> Verdict {
        let evidence = self.evidence;
        let left = evidence.left.iter();
        let left: HashSet<Place> = left.filter_map(|letter| self.place(&letter.id)).collect();
        for (user, orders) in self.orders.iter().enumerate() {
            for (number, seen) in orders.iter().enumerate() {
                let place = Place {
                    user: user as u32,
                    number: number as u32,
                };
                if !seen.paid && !left.contains(&place) {
                    self.verdict.lost.insert(place);
                }
            }
        }
        let wrong = self.letters.iter().filter(|(place, attempts)| {
            **attempts != MOST_ATTEMPTS || evidence.plan.user(**place).is_usual()
        });
        self.verdict.wrong_letters = wrong.map(|(place, _)| *place).collect();
        self.verdict.dead = self.letters.len();
        self.verdict.redriven = self.redriven.len();
        self.verdict
    }

    /// The order with this id, if it is of this run.
    fn place(&mut self, id: &str) -> Option<Place> {
        match self.evidence.plan.place(id)? {
            Ok(place) => Some(place),
            Err(id) => {
                self.verdict.invented.insert(id);
                None
            }
        }
    }

    fn seen(&mut self, place: Place) -> &mut Seen {
        &mut self.orders[place.user as usize][place.number as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::io::Write;

    use super::*;

    /// A run of few orders: what is in its ledger, and what else is known. At first nothing is wrong.
    struct Run {
        plan: Plan,
        lines: Vec<Record<'static>>,
        waiting: Vec<Place>,
        dead: Vec<(Place, u32)>,
        redriven: usize,
    }

    const OPENED: Record<'static> = Record::Opened { at_us: 1 };

    /// An order of the third user, who is a usual one.
    fn usual(number: u32) -> Place {
        Place { user: 2, number }
    }

    impl Run {
        /// The first life does the first half of each user's orders, the second one the rest.
        fn new() -> Self {
            let mut run = Self {
                plan: Plan::new(100),
                lines: Vec::new(),
                waiting: Vec::new(),
                dead: Vec::new(),
                redriven: 0,
            };
            for half in 0..2 {
                run.lines.push(OPENED);
                for user in 0..run.plan.users().len() as u32 {
                    let orders = run.plan.users()[user as usize].orders;
                    for number in (0..orders).filter(|number| number * 2 / orders == half) {
                        let place = Place { user, number };
                        run.lines.push(run.started(place, 1));
                        run.lines.push(run.paid(place, u64::from(number) + 1));
                        run.waiting.extend((half == 1).then_some(place));
                    }
                }
            }
            run
        }

        fn id(&self, place: Place) -> Cow<'static, str> {
            Cow::Owned(self.plan.id(place))
        }

        fn started(&self, place: Place, attempt: u32) -> Record<'static> {
            let id = self.id(place);
            Record::Started { id, attempt }
        }

        fn paid(&self, place: Place, number: u64) -> Record<'static> {
            Record::Paid {
                id: self.id(place),
                user: self.plan.user(place).name.clone().into(),
                number,
                cents: 100,
                at_us: 1,
            }
        }

        /// Where the payment of an order is.
        fn payment(&self, place: Place) -> usize {
            let id = self.id(place);
            let found = self
                .lines
                .iter()
                .position(|line| matches!(line, Record::Paid { id: paid, .. } if *paid == id));
            found.expect("it is paid")
        }

        fn kill(&self) -> usize {
            let opened = self.lines.iter().rposition(|line| *line == OPENED);
            opened.expect("it was opened")
        }

        fn judged(&self) -> Verdict {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            for line in &self.lines {
                writeln!(file, "{}", serde_json::to_string(line).unwrap()).unwrap();
            }
            let letters = self.dead.iter().enumerate();
            let letters = letters.map(|(at, (place, attempts))| Letter {
                sequence: at as u64 + 1,
                id: self.plan.id(*place),
                attempts: *attempts,
            });
            let dead: Vec<_> = letters.collect();
            let evidence = Evidence {
                plan: &self.plan,
                at_kill: AtKill {
                    waiting: self.waiting.iter().copied().collect(),
                },
                left: dead[self.redriven..].to_vec(),
                redriven: (1..=self.redriven as u64).collect(),
                dead,
            };
            Verdict::of(&evidence, file.path()).unwrap()
        }
    }

    #[test]
    fn a_run_in_which_nothing_is_wrong_is_good() {
        let verdict = Run::new().judged();
        assert!(verdict.is_good(), "{verdict:?}");
        assert_eq!((verdict.could_repeat, verdict.paid_at.len()), (0, 100));
    }

    #[test]
    fn what_a_kill_may_repeat_is_told_from_what_it_may_not() {
        // Interrupted: it had started, and was on the disk.
        let mut run = Run::new();
        let kill = run.kill();
        run.lines.insert(kill, run.started(usual(5), 1));
        let verdict = run.judged();
        assert!(verdict.is_good(), "{verdict:?}");
        assert_eq!(verdict.interrupted, [usual(5)].into());
        assert_eq!(verdict.could_repeat, 1);

        // Done, and the inbox did not know.
        let mut run = Run::new();
        let again = [
            run.started(usual(4), 2),
            Record::Again {
                id: run.id(usual(4)),
            },
        ];
        let behind = run.kill() + 1;
        run.lines.splice(behind..behind, again);
        assert_eq!(run.judged().outside, [usual(4)].into());
        run.waiting.push(usual(4));
        let verdict = run.judged();
        assert!(verdict.is_good(), "{verdict:?}");
        assert_eq!(verdict.repeated, [usual(4)].into());

        // Without any kill in between.
        let mut run = Run::new();
        let behind = run.payment(usual(1)) + 1;
        run.lines.insert(behind, run.started(usual(1), 2));
        assert_eq!(run.judged().outside, [usual(1)].into());
    }

    #[test]
    fn what_is_lost_is_found() {
        let mut run = Run::new();
        let last = run.payment(usual(9));
        run.lines.remove(last);
        let verdict = run.judged();
        assert!(!verdict.is_good());
        assert_eq!(verdict.lost, [usual(9)].into());
    }

    #[test]
    fn what_is_paid_twice_or_was_never_sent_is_found() {
        let mut run = Run::new();
        run.lines.push(run.paid(usual(9), 11));
        assert_eq!(run.judged().paid_twice, [usual(9)].into());

        let mut run = Run::new();
        let id = run.plan.id(usual(10));
        let stranger = Record::Started {
            id: id.clone().into(),
            attempt: 1,
        };
        run.lines.push(stranger);
        assert_eq!(run.judged().invented, [id].into());
    }

    #[test]
    fn what_overtakes_is_found() {
        // The payments of two orders change places, and their numbers with them.
        let mut run = Run::new();
        let (one, other) = (run.payment(usual(1)), run.payment(usual(2)));
        run.lines[one] = run.paid(usual(2), 2);
        run.lines[other] = run.paid(usual(1), 3);
        assert_eq!(run.judged().reordered, [usual(1)].into());

        // So do their starts.
        let mut run = Run::new();
        let (one, other) = (run.payment(usual(1)) - 1, run.payment(usual(2)) - 1);
        run.lines.swap(one, other);
        assert_eq!(run.judged().reordered, [usual(1), usual(2)].into());
    }

    #[test]
    fn dead_letters_have_all_their_attempts_and_no_more() {
        let poor = Place { user: 1, number: 9 };
        let run_of = |attempts: u32| {
            let mut run = Run::new();
            let paid = run.payment(poor);
            let start = [run.started(poor, 1), Record::Declined { id: run.id(poor) }];
            let mut lines = start.to_vec();
            for attempt in 2..=attempts {
                lines.push(run.started(poor, attempt));
                lines.push(Record::Declined { id: run.id(poor) });
            }
            run.lines.splice(paid - 1..=paid, lines);
            run.dead = vec![(poor, attempts)];
            run
        };
        let verdict = run_of(3).judged();
        assert!(verdict.is_good(), "{verdict:?}");
        assert_eq!((verdict.dead, verdict.redriven), (1, 0));
        assert_eq!(run_of(2).judged().wrong_letters, [poor].into());
        assert_eq!(run_of(4).judged().outside, [poor].into());

        // Redriven, it begins anew, and comes behind what was paid meanwhile.
        let mut run = run_of(3);
        run.redriven = 1;
        assert_eq!(run.judged().lost, [poor].into());
        run.lines.push(run.started(poor, 1));
        run.lines.push(run.paid(poor, 10));
        let verdict = run.judged();
        assert!(verdict.is_good(), "{verdict:?}");

        // A usual user has none.
        let mut run = Run::new();
        run.dead = vec![(usual(9), 3)];
        assert_eq!(run.judged().wrong_letters, [usual(9)].into());
    }
}
