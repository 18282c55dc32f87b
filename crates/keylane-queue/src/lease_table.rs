//! The decisions of a queue: which messages are ready, which are leased, and when it is finished.
//! No lock, no clock, no lanes: the time is an argument, and the effects are returned.
//!
//! ```text
//!  push ──► ready ──lease──► leased ──end──► the caller: settle, or delay
//!            ▲                 │
//!            └── release, expire, or end after the lease has expired
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use keylane_rt::clock::Instant;

use super::delivery::Delivery;
use super::expiry_queue::{ExpiryQueue, LeaseId, SHRINK_ABOVE};
use super::report::Report;

/// How far a queue is on its way to its end. It only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    Open,
    /// No message is accepted. Those that are in the queue are leased until they have settled.
    Closed,
    /// No task may wait any more: every message has settled, or the driver is gone.
    Finished,
}

/// The final outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settlement {
    Completed,
    GivenUp,
    HandedBack,
}

/// The tasks to wake once the table's lock is released: their wakers are the user's code.
#[derive(Debug, Default)]
#[must_use = "tasks wait for it"]
pub(super) struct Notifications {
    /// Messages that became ready, for as many tasks that dequeue.
    pub(super) ready: usize,
    /// Messages that settled and left their room to as many tasks that enqueue.
    pub(super) settled: usize,
    /// Tasks that enqueue must be refused from now on.
    pub(super) closed: bool,
    /// No task may wait any more.
    pub(super) finished: bool,
    /// The driver, if it must look at the time again.
    pub(super) driver: Option<Waker>,
}

/// A lease that was granted.
#[derive(Debug)]
pub(super) struct Grant<T> {
    pub(super) item: T,
    pub(super) id: LeaseId,
    pub(super) attempt: u32,
}

/// What the driver does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextWake {
    At(Instant),
    /// Nothing expires: only its waker wakes it.
    Never,
    /// The queue is finished, and so is the driver.
    Stop,
}

/// A head whose delay is over, and when that was.
pub(super) type DueHead<T> = (Instant, T);

/// `T` stands for a message: it is a shared pointer to it.
pub(super) struct LeaseTable<T> {
    lifecycle: Lifecycle,
    ready: VecDeque<Delivery<T>>,
    leases: ExpiryQueue<Delivery<T>>,
    /// When the delays of heads end; the number distinguishes those that end at the same time.
    delays: BTreeMap<(Instant, u64), T>,
    counts: Report,
    last_token: u64,
    /// When the driver will look at the time by itself.
    alarm: Option<Instant>,
    /// Wakes the driver. It is taken for each wake-up, and the driver leaves a new one.
    driver: Option<Waker>,
}

impl<T> LeaseTable<T> {
    pub(super) fn new() -> Self {
        Self {
            lifecycle: Lifecycle::Open,
            ready: VecDeque::new(),
            leases: ExpiryQueue::new(),
            delays: BTreeMap::new(),
            counts: Report::default(),
            last_token: 0,
            alarm: None,
            driver: None,
        }
    }

    /// Counts a message as accepted, or returns false if the queue is closed.
    pub(super) fn accept(&mut self) -> bool {
        let is_open = self.is_open();
        if is_open {
            self.counts.accepted += 1;
        }
        is_open
    }

    /// Takes the last `accept` back: the message did not come into its lane.
    pub(super) fn withdraw(&mut self) -> Notifications {
        self.counts.accepted -= 1;
        let mut notifications = Notifications::default();
        self.check_finished(&mut notifications);
        notifications
    }

    /// Makes a message ready, behind all that are.
    pub(super) fn push(&mut self, delivery: Delivery<T>) -> Notifications {
        self.ready.push_back(delivery);
        Notifications {
            ready: 1,
            ..Notifications::default()
        }
    }

    /// Takes the message that has been ready longest.
    pub(super) fn pop(&mut self) -> Option<Delivery<T>> {
        let delivery = self.ready.pop_front();
        if self.ready.is_empty() && self.ready.capacity() > SHRINK_ABOVE {
            self.ready = VecDeque::new();
        }
        delivery
    }

    /// Leases the message that has been ready longest, for this time.
    pub(super) fn lease(
        &mut self,
        now: Instant,
        time: Duration,
    ) -> Option<(Grant<T>, Notifications)>
    where
        T: Clone,
    {
        let mut delivery = self.pop()?;
        delivery.attempts = delivery.attempts.saturating_add(1);
        let (item, attempt) = (delivery.item.clone(), delivery.attempts);
        self.last_token += 1;
        let id = self.leases.insert(delivery, self.last_token, now + time);
        let notifications = Notifications {
            driver: self.wake_driver(),
            ..Notifications::default()
        };
        Some((Grant { item, id, attempt }, notifications))
    }

    /// Ends a lease for its worker. The caller settles or delays the message.
    ///
    /// A lease that has expired cannot be ended: its message is ready again.
    pub(super) fn end(&mut self, id: LeaseId, now: Instant) -> Result<Delivery<T>, Notifications> {
        let expires_at = self.leases.expires_at(id);
        let Some(delivery) = self.leases.remove(id) else {
            return Err(Notifications::default());
        };
        if expires_at.is_none_or(|at| at <= now) {
            return Err(self.push(delivery));
        }
        Ok(delivery)
    }

    /// Ends a lease that was dropped, if it has not ended before. Its message is ready again.
    pub(super) fn release(&mut self, id: LeaseId) -> Notifications {
        match self.leases.remove(id) {
            Some(delivery) => self.push(delivery),
            None => Notifications::default(),
        }
    }

    /// When a lease expires, or `None` if it has.
    pub(super) fn expires_at(&self, id: LeaseId, now: Instant) -> Option<Instant> {
        self.leases.expires_at(id).filter(|at| *at > now)
    }

    /// Lets a lease expire in `time` from now, unless it would expire later than that anyway.
    /// Returns false if it has expired.
    ///
    /// The driver need not be woken for it: it wakes up too early, and plans anew.
    #[must_use]
    pub(super) fn extend(
        &mut self,
        id: LeaseId,
        now: Instant,
        time: Duration,
        lease_time: Duration,
    ) -> bool {
        let is_held = self.expires_at(id, now).is_some();
        if is_held {
            self.leases.extend(id, now, time, lease_time);
        }
        is_held
    }

    /// Counts the outcome of messages. `next` is the head behind the one that has settled.
    pub(super) fn settle(
        &mut self,
        settlement: Settlement,
        messages: usize,
        next: Option<Delivery<T>>,
    ) -> Notifications {
        let mut notifications = match next {
            Some(delivery) => self.push(delivery),
            None => Notifications::default(),
        };
        let count = match settlement {
            Settlement::Completed => &mut self.counts.completed,
            Settlement::GivenUp => &mut self.counts.given_up,
            Settlement::HandedBack => &mut self.counts.handed_back,
        };
        *count += messages as u64;
        notifications.settled = messages;
        self.check_finished(&mut notifications);
        notifications
    }

    /// Adds the delay of a head that its lane holds.
    pub(super) fn delay(&mut self, until: Instant, number: u64, item: T) -> Notifications {
        self.delays.insert((until, number), item);
        Notifications {
            driver: self.wake_driver(),
            ..Notifications::default()
        }
    }

    /// Removes a delay before its time: its head has left the lane.
    pub(super) fn cancel_delay(&mut self, until: Instant, number: u64) -> Option<T> {
        self.delays.remove(&(until, number))
    }

    /// Makes messages ready whose lease has expired, and takes out the delays that are over: up to
    /// `most` of each. Returns true if there may be more.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        most: usize,
        due: &mut Vec<DueHead<T>>,
    ) -> (Notifications, bool) {
        let mut notifications = Notifications::default();
        while notifications.ready < most
            && let Some(delivery) = self.leases.pop_expired(now)
        {
            notifications.ready += self.push(delivery).ready;
        }
        while due.len() < most
            && let Some(delay) = self.delays.first_entry()
            && delay.key().0 <= now
        {
            let ((until, _), item) = delay.remove_entry();
            due.push((until, item));
        }
        let may_be_more = notifications.ready == most || due.len() == most;
        (notifications, may_be_more)
    }

    /// Tells the driver when to wake up by itself. Its waker wakes it for anything earlier.
    pub(super) fn plan_wake(&mut self, driver: &Waker) -> NextWake {
        if self.is_finished() {
            return NextWake::Stop;
        }
        self.driver = Some(driver.clone());
        self.alarm = self.earliest();
        self.alarm.map_or(NextWake::Never, NextWake::At)
    }

    /// Accepts no more messages.
    pub(super) fn close(&mut self) -> Notifications {
        let mut notifications = Notifications::default();
        if self.is_open() {
            self.lifecycle = Lifecycle::Closed;
            notifications.closed = true;
        }
        self.check_finished(&mut notifications);
        notifications
    }

    /// Finishes the queue, whatever is left in it: no driver looks at the time any more.
    pub(super) fn stop(&mut self) -> Notifications {
        let finished = !self.is_finished();
        self.lifecycle = Lifecycle::Finished;
        Notifications {
            closed: finished,
            finished,
            driver: self.driver.take(),
            ..Notifications::default()
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.lifecycle == Lifecycle::Open
    }

    pub(super) fn is_finished(&self) -> bool {
        self.lifecycle == Lifecycle::Finished
    }

    pub(super) fn leased(&self) -> usize {
        self.leases.len()
    }

    pub(super) fn report(&self) -> Report {
        let counts = self.counts;
        let settled = counts.completed + counts.given_up + counts.handed_back;
        Report {
            unsettled: counts.accepted - settled,
            ..counts
        }
    }

    /// A closed queue is finished when nothing can come into it or back to it.
    fn check_finished(&mut self, notifications: &mut Notifications) {
        let is_settled = self.report().unsettled == 0;
        if self.lifecycle == Lifecycle::Closed && is_settled {
            self.lifecycle = Lifecycle::Finished;
            notifications.finished = true;
            notifications.driver = self.driver.take();
        }
    }

    /// The waker of the driver, if the driver would wake up too late by itself.
    fn wake_driver(&mut self) -> Option<Waker> {
        let earliest = self.earliest()?;
        if self.alarm.is_some_and(|alarm| alarm <= earliest) {
            return None;
        }
        self.driver.take()
    }

    /// When the next lease expires or the next delay ends.
    fn earliest(&self) -> Option<Instant> {
        let delay = self.delays.first_key_value().map(|((until, _), _)| *until);
        match (self.leases.earliest(), delay) {
            (Some(lease), Some(delay)) => Some(lease.min(delay)),
            (lease, delay) => lease.or(delay),
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(30);
    const NANO: Duration = Duration::from_nanos(1);

    /// A table in which these messages were accepted and are ready.
    fn holding(messages: impl IntoIterator<Item = u8>) -> LeaseTable<u8> {
        let mut table = LeaseTable::new();
        for message in messages {
            assert!(table.accept());
            assert_eq!(table.push(Delivery::new(message)).ready, 1);
        }
        table
    }

    fn lease(table: &mut LeaseTable<u8>, now: Instant) -> Grant<u8> {
        let (grant, _) = table.lease(now, TIME).expect("a message is ready");
        grant
    }

    /// Takes out what is ready, in order.
    fn drain(table: &mut LeaseTable<u8>) -> Vec<u8> {
        std::iter::from_fn(|| Some(table.pop()?.item)).collect()
    }

    fn complete(table: &mut LeaseTable<u8>, id: LeaseId, now: Instant) -> Notifications {
        assert!(table.end(id, now).is_ok());
        table.settle(Settlement::Completed, 1, None)
    }

    fn is_nothing(notifications: &Notifications) -> bool {
        let Notifications {
            ready,
            settled,
            closed,
            finished,
            driver,
        } = notifications;
        (*ready, *settled, *closed, *finished, driver.is_some()) == (0, 0, false, false, false)
    }

    #[test]
    fn messages_are_leased_in_the_order_in_which_they_became_ready() {
        let now = Instant::now();
        let mut table = holding(1..=3);
        let first = lease(&mut table, now);
        assert_eq!((first.item, first.attempt, first.id.token), (1, 1, 1));
        assert_eq!(table.release(first.id).ready, 1);
        assert_eq!(lease(&mut table, now).item, 2);
        let third = lease(&mut table, now);
        assert_eq!((third.item, third.attempt, third.id.token), (3, 1, 3));
        let again = lease(&mut table, now);
        assert_eq!((again.item, again.attempt, again.id.token), (1, 2, 4));
        assert!(table.lease(now, TIME).is_none());
        assert_eq!(table.leased(), 3);
    }

    #[test]
    fn attempts_do_not_overflow() {
        let mut table = holding([]);
        let _ = table.push(Delivery {
            item: 1,
            attempts: u32::MAX,
        });
        assert_eq!(lease(&mut table, Instant::now()).attempt, u32::MAX);
    }

    /// The clock decides, whether or not the driver has run.
    #[test]
    fn a_lease_ends_with_its_time_and_not_with_the_driver() {
        let start = Instant::now();
        let mut table = holding([1]);
        let grant = lease(&mut table, start);
        assert_eq!(
            table.expires_at(grant.id, start + TIME - NANO),
            Some(start + TIME)
        );
        assert_eq!(table.expires_at(grant.id, start + TIME), None);
        let Err(notifications) = table.end(grant.id, start + TIME) else {
            panic!("an expired lease has settled the message");
        };
        assert_eq!((notifications.ready, notifications.settled), (1, 0));
        assert_eq!((table.leased(), table.report().unsettled), (0, 1));
        // The next lease of the message can be ended.
        let again = lease(&mut table, start + TIME);
        assert_eq!(again.attempt, 2);
        let delivery = table.end(again.id, start + 2 * TIME - NANO);
        let expected = Delivery {
            item: 1,
            attempts: 2,
        };
        assert_eq!(delivery.ok(), Some(expected));
    }

    #[test]
    fn a_lease_ends_once() {
        let now = Instant::now();
        let mut table = holding([1]);
        let first = lease(&mut table, now);
        assert_eq!(table.release(first.id).ready, 1);
        let second = lease(&mut table, now);
        // The first lease can do nothing to the second.
        assert!(is_nothing(&table.release(first.id)));
        assert!(table.end(first.id, now).is_err_and(|n| is_nothing(&n)));
        assert!(!table.extend(first.id, now, TIME, TIME));
        assert_eq!(table.expires_at(first.id, now), None);
        assert!(table.end(second.id, now).is_ok());
        assert!(table.end(second.id, now).is_err_and(|n| is_nothing(&n)));
        assert_eq!((table.leased(), drain(&mut table)), (0, vec![]));
    }

    #[test]
    fn a_lease_is_extended_while_it_lasts() {
        let start = Instant::now();
        let mut table = holding([1, 2]);
        let grant = lease(&mut table, start);
        let almost = start + TIME - NANO;
        assert!(table.extend(grant.id, almost, 2 * TIME, TIME));
        assert_eq!(table.expires_at(grant.id, almost), Some(almost + 2 * TIME));
        assert!(table.extend(grant.id, almost, TIME, TIME));
        assert_eq!(
            table.expires_at(grant.id, almost),
            Some(almost + 2 * TIME),
            "an extension is never shorter"
        );
        // It lasts longer than usual, and holds up no other lease.
        let second = lease(&mut table, almost);
        assert_eq!(table.expires_at(second.id, almost), Some(almost + TIME));
        assert!(!table.extend(grant.id, almost + 2 * TIME, TIME, TIME));
        assert_eq!(table.expires_at(grant.id, almost + 2 * TIME), None);
    }

    #[test]
    fn leases_expire_in_the_order_of_their_times_and_in_portions() {
        let start = Instant::now();
        let mut table = holding(1..=4);
        let first = lease(&mut table, start);
        for _ in 0..3 {
            lease(&mut table, start);
        }
        assert!(table.extend(first.id, start, TIME + NANO, TIME));
        let mut due = Vec::new();
        let (notifications, more) = table.expire(start + TIME - NANO, 2, &mut due);
        assert!(is_nothing(&notifications) && !more);
        let (notifications, more) = table.expire(start + TIME, 2, &mut due);
        assert_eq!((notifications.ready, more), (2, true));
        let (notifications, more) = table.expire(start + TIME, 2, &mut due);
        assert_eq!((notifications.ready, more), (1, false));
        let (notifications, more) = table.expire(start + TIME + NANO, 2, &mut due);
        assert_eq!((notifications.ready, more), (1, false));
        assert_eq!((drain(&mut table), due), (vec![2, 3, 4, 1], vec![]));
    }

    #[test]
    fn delays_end_in_the_order_of_their_times_and_in_portions() {
        let start = Instant::now();
        let mut table = holding([]);
        for (nanos, number) in [(3, 1), (1, 3), (1, 2), (2, 4)] {
            let until = start + TIME + nanos * NANO;
            let _ = table.delay(until, number, number as u8);
        }
        let cancelled = start + TIME + 2 * NANO;
        assert_eq!(table.cancel_delay(cancelled, 1), None);
        assert_eq!(table.cancel_delay(cancelled, 4), Some(4));
        assert_eq!(table.cancel_delay(cancelled, 4), None);
        let mut due = Vec::new();
        let (notifications, more) = table.expire(start + TIME, 1, &mut due);
        assert!(is_nothing(&notifications) && !more && due.is_empty());
        let first = start + TIME + NANO;
        let (_, more) = table.expire(first, 1, &mut due);
        assert_eq!((std::mem::take(&mut due), more), (vec![(first, 2)], true));
        let (_, more) = table.expire(first, 2, &mut due);
        assert_eq!((std::mem::take(&mut due), more), (vec![(first, 3)], false));
        let last = start + TIME + 3 * NANO;
        let (_, more) = table.expire(last, 2, &mut due);
        assert_eq!((due, more), (vec![(last, 1)], false));
        assert_eq!(table.plan_wake(Waker::noop()), NextWake::Never);
    }

    #[test]
    fn the_driver_is_woken_for_what_is_earlier_than_its_alarm() {
        let start = Instant::now();
        let mut table = holding(1..=3);
        let waker = Waker::noop();
        assert_eq!(table.plan_wake(waker), NextWake::Never);
        let (first, notifications) = table.lease(start, TIME).expect("three are ready");
        assert!(notifications.driver.is_some(), "it slept without an alarm");
        assert_eq!(table.plan_wake(waker), NextWake::At(start + TIME));
        let (_, notifications) = table.lease(start, TIME).expect("two are ready");
        assert!(notifications.driver.is_none(), "it expires no earlier");
        // The first lease has ended; the alarm stays where it is, and is early enough.
        assert!(table.end(first.id, start).is_ok());
        let (_, notifications) = table.lease(start + TIME / 2, TIME).expect("one is ready");
        assert!(notifications.driver.is_none());
        assert!(table.delay(start + TIME, 1, 8).driver.is_none());
        assert!(table.delay(start + TIME - NANO, 2, 9).driver.is_some());
        let notifications = table.delay(start, 3, 9);
        assert!(notifications.driver.is_none(), "it is awake already");
        assert_eq!(table.plan_wake(waker), NextWake::At(start));
    }

    #[test]
    fn the_driver_wakes_up_for_the_earlier_of_leases_and_delays() {
        let start = Instant::now();
        let mut table = holding([1]);
        let grant = lease(&mut table, start);
        let _ = table.delay(start + 2 * TIME, 1, 9);
        assert_eq!(table.plan_wake(Waker::noop()), NextWake::At(start + TIME));
        assert!(table.end(grant.id, start).is_ok());
        assert_eq!(
            table.plan_wake(Waker::noop()),
            NextWake::At(start + 2 * TIME)
        );
    }

    #[test]
    fn every_settlement_is_counted_and_leaves_its_room() {
        let mut table = holding(0..7);
        let settlements = [
            (Settlement::Completed, 1),
            (Settlement::GivenUp, 2),
            (Settlement::HandedBack, 3),
        ];
        for (settlement, messages) in settlements {
            let notifications = table.settle(settlement, messages, None);
            assert_eq!((notifications.settled, notifications.ready), (messages, 0));
            assert!(!notifications.closed && !notifications.finished);
        }
        let next = Some(Delivery::new(9));
        let notifications = table.settle(Settlement::Completed, 0, next);
        assert_eq!((notifications.settled, notifications.ready), (0, 1));
        let report = table.report();
        assert_eq!((report.accepted, report.completed), (7, 1));
        assert_eq!((report.given_up, report.handed_back), (2, 3));
        assert_eq!(report.unsettled, 1);
        assert_eq!(drain(&mut table), [0, 1, 2, 3, 4, 5, 6, 9]);
    }

    #[test]
    fn a_closed_queue_is_finished_when_nothing_can_come_back() {
        let now = Instant::now();
        let mut table = holding([1, 2]);
        assert_eq!(table.plan_wake(Waker::noop()), NextWake::Never);
        let first = lease(&mut table, now);
        let second = lease(&mut table, now);
        assert!(table.is_open() && !table.is_finished());
        let notifications = table.close();
        assert!(notifications.closed && !notifications.finished);
        assert!(!table.is_open() && !table.is_finished());
        assert!(is_nothing(&table.close()), "it was closed before");
        assert!(!table.accept());
        assert_eq!(table.report().accepted, 2);
        let notifications = complete(&mut table, first.id, now);
        assert!(!notifications.finished, "the second one may come back");
        assert!(!table.release(second.id).finished);
        let second = lease(&mut table, now);
        assert_eq!(table.plan_wake(Waker::noop()), NextWake::At(now + TIME));
        let notifications = complete(&mut table, second.id, now);
        assert!(notifications.finished && !notifications.closed);
        assert!(notifications.driver.is_some());
        assert!(table.is_finished());
        assert_eq!(table.plan_wake(Waker::noop()), NextWake::Stop);
        assert!(is_nothing(&table.close()), "it was finished before");
    }

    #[test]
    fn an_empty_queue_is_finished_when_it_closes() {
        let mut table = holding([]);
        let notifications = table.close();
        assert!(notifications.closed && notifications.finished);
        assert!(table.is_finished());
    }

    #[test]
    fn a_message_that_is_withdrawn_was_never_accepted() {
        let mut table = holding([1]);
        assert!(table.accept());
        assert!(is_nothing(&table.withdraw()));
        assert_eq!((table.report().accepted, table.is_open()), (1, true));
        // The end of the queue may be waiting for it.
        assert!(table.accept());
        let _ = table.settle(Settlement::HandedBack, 1, None);
        assert!(!table.close().finished);
        let notifications = table.withdraw();
        assert!(notifications.finished && !notifications.closed);
        assert_eq!((table.report().accepted, table.report().unsettled), (1, 0));
    }

    #[test]
    fn a_queue_is_stopped_once() {
        for is_closed in [false, true] {
            let mut table = holding([1]);
            assert_eq!(table.plan_wake(Waker::noop()), NextWake::Never);
            if is_closed {
                let _ = table.close();
            }
            let notifications = table.stop();
            assert!(notifications.closed && notifications.finished);
            assert!(notifications.driver.is_some());
            assert!(table.is_finished() && !table.accept());
            assert!(is_nothing(&table.stop()), "it was stopped before");
            // What is left in it can still be leased and settled.
            let grant = lease(&mut table, Instant::now());
            let notifications = complete(&mut table, grant.id, Instant::now());
            assert_eq!((notifications.settled, notifications.finished), (1, false));
        }
    }

    #[test]
    fn many_ready_messages_leave_nothing_behind() {
        for (many, is_kept) in [(SHRINK_ABOVE, true), (SHRINK_ABOVE + 1, false)] {
            let mut table = LeaseTable::new();
            table.ready.reserve_exact(many);
            assert_eq!(table.ready.capacity(), many);
            let _ = table.push(Delivery::new(1));
            let _ = table.push(Delivery::new(2));
            assert!(table.pop().is_some());
            assert_eq!(table.ready.capacity(), many, "there is one left");
            assert!(table.pop().is_some());
            assert_eq!(table.ready.capacity() > 0, is_kept);
        }
    }
}
