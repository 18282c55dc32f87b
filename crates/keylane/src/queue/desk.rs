//! What a queue decides: who is ready, who is leased, what is over. No lock, no clock, no lane.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use super::item::{Item, Turn};
use super::leases::Leases;
use super::report::QueueReport;
use crate::clock::Instant;
use crate::rt::Arc;

/// Memory for more than this many is given back once nothing is in it.
pub(super) const MANY: usize = 1_024;

/// How far the end has come. It only ever grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// No more in; what is in is handed out until it has settled.
    Closed,
    /// Nobody waits any more: all has settled, or the runtime is gone.
    Over,
}

/// The final outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Completed,
    GivenUp,
    HandedBack,
}

/// What must follow once the lock is gone: all of it may run wakers of the user's.
#[derive(Debug, Default)]
#[must_use = "somebody waits for it"]
pub(super) struct Orders {
    /// Turns that became ready.
    pub(super) turns: usize,
    /// Messages that settled.
    pub(super) room: usize,
    /// Senders must be refused from now on.
    pub(super) closed: bool,
    /// Nobody may wait any more.
    pub(super) over: bool,
    /// The driver must look at the time again.
    pub(super) driver: Option<Waker>,
}

/// A lease as it is granted.
pub(super) struct Grant<K, M> {
    pub(super) item: Arc<Item<K, M>>,
    pub(super) slot: usize,
    pub(super) token: u64,
    pub(super) attempt: u32,
}

/// What the driver does next.
#[derive(Debug)]
pub(super) enum Watch {
    Until(Instant),
    /// Nothing has an end: sleep until woken.
    Idle,
    /// The queue is over.
    End,
}

/// A head that waits in its lane, and until when.
pub(super) type Due<K, M> = (Instant, Arc<Item<K, M>>);

pub(super) struct Desk<K, M> {
    stage: Stage,
    ready: VecDeque<Turn<K, M>>,
    leases: Leases<Turn<K, M>>,
    /// When heads that wait are due; the number keeps those of one moment apart.
    waits: BTreeMap<(Instant, u64), Arc<Item<K, M>>>,
    counts: QueueReport,
    tokens: u64,
    /// The time at which the driver looks by itself.
    alarm: Option<Instant>,
    waker: Option<Waker>,
}

impl<K, M> Desk<K, M> {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Open,
            ready: VecDeque::new(),
            leases: Leases::new(),
            waits: BTreeMap::new(),
            counts: QueueReport::default(),
            tokens: 0,
            alarm: None,
            waker: None,
        }
    }

    /// Counts a message as accepted. False: it is too late.
    pub(super) fn accept(&mut self) -> bool {
        let open = self.stage == Stage::Open;
        if open {
            self.counts.accepted += 1;
        }
        open
    }

    /// A message that was counted never came into its lane.
    pub(super) fn refuse(&mut self) -> Orders {
        self.counts.accepted -= 1;
        let mut orders = Orders::default();
        self.check_end(&mut orders);
        orders
    }

    /// A turn may be handed out, after all that became ready before.
    pub(super) fn push(&mut self, turn: Turn<K, M>) -> Orders {
        #[cfg(keylane_mutant = "queue-front")]
        self.ready.push_front(turn);
        #[cfg(not(keylane_mutant = "queue-front"))]
        self.ready.push_back(turn);
        Orders {
            turns: 1,
            ..Orders::default()
        }
    }

    /// Takes the turn that has been ready longest.
    pub(super) fn pop(&mut self) -> Option<Turn<K, M>> {
        let turn = self.ready.pop_front();
        if self.ready.is_empty() && self.ready.capacity() > MANY {
            self.ready = VecDeque::new();
        }
        turn
    }

    /// Leases the turn that has been ready longest.
    pub(super) fn grant(&mut self, now: Instant, time: Duration) -> Option<(Grant<K, M>, Orders)> {
        let mut turn = self.pop()?;
        turn.attempts = turn.attempts.saturating_add(1);
        self.tokens += 1;
        let (item, attempt) = (Arc::clone(&turn.item), turn.attempts);
        let token = self.tokens;
        let slot = self.leases.grant(turn, token, now + time);
        let grant = Grant {
            item,
            slot,
            token,
            attempt,
        };
        let orders = Orders {
            driver: self.nudge(),
            ..Orders::default()
        };
        Some((grant, orders))
    }

    /// Ends a lease. If it has run out there is none, and its turn is ready again.
    pub(super) fn take(
        &mut self,
        slot: usize,
        token: u64,
        now: Instant,
    ) -> Result<Turn<K, M>, Orders> {
        let until = self.leases.until(slot, token);
        let Some(turn) = self.leases.take(slot, token) else {
            return Err(Orders::default());
        };
        #[cfg(not(keylane_mutant = "queue-late"))]
        if until.is_none_or(|until| until <= now) {
            return Err(self.push(turn));
        }
        #[cfg(keylane_mutant = "queue-late")]
        let _ = (until, now);
        Ok(turn)
    }

    /// Ends a lease that was dropped, if it is still one: its message is first in its lane again.
    pub(super) fn release(&mut self, slot: usize, token: u64) -> Orders {
        match self.leases.take(slot, token) {
            #[cfg(keylane_mutant = "queue-lost-wake")]
            Some(turn) => Orders {
                turns: 0,
                ..self.push(turn)
            },
            #[cfg(not(keylane_mutant = "queue-lost-wake"))]
            Some(turn) => self.push(turn),
            None => Orders::default(),
        }
    }

    /// The end of a lease that has not run out.
    pub(super) fn until(&self, slot: usize, token: u64, now: Instant) -> Option<Instant> {
        let until = self.leases.until(slot, token);
        until.filter(|until| *until > now)
    }

    /// Moves the end of a lease that has not run out. Nothing is to be done for the driver: it
    /// looks too early, and sees.
    pub(super) fn extend(&mut self, slot: usize, token: u64, until: Instant, horizon: Instant) {
        self.leases.extend(slot, token, until, horizon);
    }

    /// Messages have settled, and behind them another may be handed out.
    pub(super) fn settle(
        &mut self,
        outcome: Outcome,
        messages: usize,
        next: Option<Turn<K, M>>,
    ) -> Orders {
        let mut orders = match next {
            Some(turn) => self.push(turn),
            None => Orders::default(),
        };
        let count = match outcome {
            Outcome::Completed => &mut self.counts.completed,
            Outcome::GivenUp => &mut self.counts.given_up,
            Outcome::HandedBack => &mut self.counts.handed_back,
        };
        *count += messages as u64;
        orders.room = messages;
        #[cfg(keylane_mutant = "queue-room")]
        if outcome == Outcome::GivenUp {
            orders.room = 0;
        }
        self.check_end(&mut orders);
        orders
    }

    /// A head waits in its lane.
    pub(super) fn wait(
        &mut self,
        until: Instant,
        number: u64,
        item: Arc<Item<K, M>>,
    ) -> Option<Waker> {
        self.waits.insert((until, number), item);
        self.nudge()
    }

    /// A head does not wait any more.
    pub(super) fn forget(&mut self, until: Instant, number: u64) -> Option<Arc<Item<K, M>>> {
        self.waits.remove(&(until, number))
    }

    /// Makes ready what has run out, and takes heads that are due, up to so many. True: there may be
    /// more.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        most: usize,
        due: &mut Vec<Due<K, M>>,
    ) -> (Orders, bool) {
        let mut orders = Orders::default();
        while orders.turns < most
            && let Some(turn) = self.leases.run_out(now)
        {
            orders.turns += self.push(turn).turns;
        }
        while due.len() < most
            && let Some(wait) = self.waits.first_entry()
            && wait.key().0 <= now
        {
            let ((until, _), item) = wait.remove_entry();
            due.push((until, item));
        }
        let more = orders.turns == most || due.len() == most;
        (orders, more)
    }

    /// The driver says how to wake it, and hears until when it may sleep.
    pub(super) fn watch(&mut self, waker: &Waker) -> Watch {
        if self.stage == Stage::Over {
            return Watch::End;
        }
        self.waker = Some(waker.clone());
        self.alarm = self.earliest();
        self.alarm.map_or(Watch::Idle, Watch::Until)
    }

    /// No more in.
    pub(super) fn close(&mut self) -> Orders {
        let mut orders = Orders::default();
        if self.stage == Stage::Open {
            self.stage = Stage::Closed;
            orders.closed = true;
        }
        self.check_end(&mut orders);
        orders
    }

    /// The end, whatever is left: nobody keeps the time any more.
    pub(super) fn stop(&mut self) -> Orders {
        let over = self.stage != Stage::Over;
        self.stage = Stage::Over;
        Orders {
            closed: over,
            over,
            driver: self.waker.take(),
            ..Orders::default()
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    pub(super) fn leased(&self) -> usize {
        self.leases.len()
    }

    pub(super) fn report(&self) -> QueueReport {
        let counts = self.counts;
        let settled = counts.completed + counts.given_up + counts.handed_back;
        QueueReport {
            unsettled: counts.accepted - settled,
            ..counts
        }
    }

    /// Once nothing can come in or back, nobody may wait for it.
    fn check_end(&mut self, orders: &mut Orders) {
        #[cfg(keylane_mutant = "queue-early-end")]
        let settled = self.ready.is_empty();
        #[cfg(not(keylane_mutant = "queue-early-end"))]
        let settled = self.report().unsettled == 0;
        if self.stage == Stage::Closed && settled {
            self.stage = Stage::Over;
            orders.over = true;
            orders.driver = self.waker.take();
        }
    }

    /// Wakes the driver if it would look too late.
    fn nudge(&mut self) -> Option<Waker> {
        let earliest = self.earliest()?;
        if self.alarm.is_some_and(|alarm| alarm <= earliest) {
            return None;
        }
        #[cfg(keylane_mutant = "queue-deaf")]
        if self.alarm.is_some() {
            return None;
        }
        self.waker.take()
    }

    fn earliest(&self) -> Option<Instant> {
        let wait = self.waits.first_key_value().map(|((until, _), _)| *until);
        self.leases.earliest().into_iter().chain(wait).min()
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;
    use crate::engine::Quiet;

    const TIME: Duration = Duration::from_secs(30);

    fn turn(key: u8, message: u8) -> Turn<u8, u8> {
        Turn::new(Arc::new(Item {
            key: Quiet::new(key),
            hash: u64::from(key),
            message: Quiet::new(message),
        }))
    }

    fn leased(desk: &mut Desk<u8, u8>, now: Instant) -> Grant<u8, u8> {
        let (grant, _) = desk.grant(now, TIME).expect("something is ready");
        grant
    }

    /// Whether the driver has run or not: the clock decides.
    #[test]
    fn a_lease_ends_with_its_time_and_not_with_the_driver() {
        let start = Instant::now();
        let mut desk = Desk::new();
        assert!(desk.accept());
        let _ = desk.push(turn(1, 1));
        let grant = leased(&mut desk, start);
        let last = start + TIME - Duration::from_nanos(1);
        assert!(desk.until(grant.slot, grant.token, last).is_some());
        assert!(desk.until(grant.slot, grant.token, start + TIME).is_none());
        let Err(orders) = desk.take(grant.slot, grant.token, start + TIME) else {
            panic!("a late worker has settled the message");
        };
        assert_eq!((orders.turns, orders.room), (1, 0));
        assert_eq!((desk.leased(), desk.report().unsettled), (0, 1));
        // And its next lease can be completed.
        let again = leased(&mut desk, start + TIME);
        assert_eq!(again.attempt, 2);
        assert!(desk.take(again.slot, again.token, start + TIME).is_ok());
    }

    #[test]
    fn the_driver_is_woken_for_an_earlier_end_and_for_no_other() {
        let start = Instant::now();
        let mut desk = Desk::new();
        let waker = Waker::noop();
        assert!(matches!(desk.watch(waker), Watch::Idle));
        for message in 0..3 {
            assert!(desk.accept());
            let _ = desk.push(turn(message, message));
        }
        let (first, orders) = desk.grant(start, TIME).expect("three are ready");
        assert!(orders.driver.is_some(), "it slept without an end");
        assert!(matches!(desk.watch(waker), Watch::Until(end) if end == start + TIME));
        let (_, orders) = desk.grant(start + TIME / 2, TIME).expect("two are ready");
        assert!(orders.driver.is_none(), "the second lease ends later");
        // The first is done; the driver looks at its time all the same, and is not woken for less.
        assert!(desk.take(first.slot, first.token, start).is_ok());
        let (_, orders) = desk.grant(start + TIME / 2, TIME).expect("one is ready");
        assert!(orders.driver.is_none());
        let item = turn(9, 9).item;
        assert!(desk.wait(start + TIME / 4, 1, item).is_some());
    }

    #[test]
    fn the_end_has_come_when_nothing_can_come_back() {
        let start = Instant::now();
        let mut desk = Desk::new();
        assert!(desk.accept() && desk.accept());
        let _ = desk.push(turn(1, 1));
        let _ = desk.push(turn(2, 2));
        let (first, second) = (leased(&mut desk, start), leased(&mut desk, start));
        let orders = desk.close();
        assert!(orders.closed && !orders.over);
        assert!(!desk.accept());
        assert!(desk.take(first.slot, first.token, start).is_ok());
        let orders = desk.settle(Outcome::Completed, 1, None);
        assert!(!orders.over, "the second one may come back");
        let _ = desk.release(second.slot, second.token);
        let second = leased(&mut desk, start);
        assert!(desk.take(second.slot, second.token, start).is_ok());
        assert!(desk.settle(Outcome::GivenUp, 1, None).over);
        assert!(desk.is_over());
    }
}
