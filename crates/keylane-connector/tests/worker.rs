//! Single interleavings over a system that does as it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use keylane_connector::{
    Changes, End, Entry, Handed, Memory, Reply, Rest, System, WorkerPosition, WorkerSource, lock,
};
use keylane_source::{
    Deliveries, Delivery, Features, Outcome, PartNews, RawMessage, Settlement, Source, StartGuard,
};
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
struct Fault;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fault")
    }
}

impl std::error::Error for Fault {}

/// What the system does with an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Answers,
    /// It applies it, and the answer is lost.
    LosesAnswer,
    /// It knows the worker no longer.
    Lost,
    Forgotten,
    Unable,
    /// It takes nothing, and hands over nothing.
    Blocked,
    Hangs,
    Panics,
}

#[derive(Debug, Default)]
struct Server {
    mode: Mode,
    /// Whether each attempt is noted.
    is_exact: bool,
    /// No connection can be made.
    is_away: bool,
    wait_fails: bool,
    leave_hangs: bool,
    /// The next call of `leave` fails.
    leave_fails: bool,
    enter_takes: Duration,
    /// The returned messages of the last exchange.
    asked: Vec<u64>,
    waiting: BTreeSet<u64>,
    held: BTreeSet<u64>,
    again: BTreeSet<u64>,
    noted: BTreeMap<u64, u32>,
    done: Vec<u64>,
    exchanges: u64,
    left: u64,
    /// The worker that has the messages.
    worker: u64,
    workers: u64,
}

#[derive(Debug, Default)]
struct Scripted(Mutex<Server>);

impl Scripted {
    fn server(&self) -> MutexGuard<'_, Server> {
        lock(&self.0)
    }
}

impl Server {
    fn apply(&mut self, changes: &Changes<u64>, came: usize) {
        for id in changes.done.iter().chain(&changes.gone) {
            if self.held.remove(id) {
                self.again.remove(id);
                self.noted.remove(id);
                self.done.push(*id);
            }
        }
        for (id, attempts) in &changes.notes {
            if self.held.contains(id) {
                self.noted.insert(*id, *attempts);
            }
        }
        self.again.extend(changes.again.iter().take(came));
    }

    fn attempts(&self, id: u64) -> u32 {
        self.noted.get(&id).copied().unwrap_or(0)
    }

    fn take(&mut self, most: usize) -> Vec<Handed<u64>> {
        let mut ids = Vec::new();
        while ids.len() < most {
            let Some(id) = self.again.pop_first().or_else(|| {
                let id = self.waiting.pop_first();
                self.held.extend(id);
                id
            }) else {
                break;
            };
            ids.push(id);
        }
        let handed = |id| Handed {
            id,
            message: RawMessage::new(""),
            attempts: self.attempts(id),
            noted: self.attempts(id) + u32::from(!self.is_exact),
        };
        ids.into_iter().map(handed).collect()
    }
}

impl System for Scripted {
    type Id = u64;
    type Worker = u64;
    type Link = ();
    type Error = Fault;

    fn name(&self) -> String {
        "scripted".to_owned()
    }

    fn features(&self) -> Features {
        Features::new()
            .survives_restart()
            .counts_attempts()
            .random_access()
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn worker(&self) -> u64 {
        let mut server = self.server();
        server.workers += 1;
        server.workers
    }

    async fn connect(&self) -> Result<(), Fault> {
        match self.server().is_away {
            true => Err(Fault),
            false => Ok(()),
        }
    }

    async fn enter(
        &self,
        (): &mut (),
        worker: &u64,
        entry: Entry<'_, u64>,
    ) -> Result<Memory, End<Fault>> {
        let takes = self.server().enter_takes;
        sleep(takes).await;
        let mut server = self.server();
        if entry.is_new {
            server.worker = *worker;
            let held = std::mem::take(&mut server.held);
            server.again.clear();
            server.waiting.extend(held);
        } else if server.worker != *worker {
            return Err(End::Lost);
        }
        server.apply(entry.settled, 0);
        server.again = server.held.clone();
        Ok(Memory::Whole)
    }

    async fn exchange(
        &self,
        (): &mut (),
        _: &u64,
        changes: &Changes<u64>,
        most: usize,
    ) -> Result<Reply<u64>, End<Fault>> {
        sleep(Duration::from_millis(1)).await;
        let mode = {
            let mut server = self.server();
            server.exchanges += 1;
            server.asked.clone_from(&changes.again);
            server.mode
        };
        match mode {
            Mode::Hangs => pending::<()>().await,
            Mode::Panics => panic!("as it was told"),
            Mode::Lost | Mode::Forgotten => {
                self.server().worker = 0;
                return Err(match mode {
                    Mode::Lost => End::Lost,
                    _ => End::Forgotten,
                });
            }
            Mode::Unable => return Err(End::Unable(Fault)),
            Mode::Blocked => {
                self.server().apply(changes, 0);
                return Ok(Reply {
                    messages: Vec::new(),
                    came: 0,
                    rest: Rest::Blocked,
                });
            }
            Mode::Answers | Mode::LosesAnswer => {}
        }
        let mut server = self.server();
        let came = changes.again.len().min(most);
        server.apply(changes, came);
        let messages = server.take(most);
        if mode == Mode::LosesAnswer {
            return Err(End::Failed(Fault));
        }
        let rest = match server.waiting.is_empty() && server.again.is_empty() {
            true => Rest::Nothing,
            false => Rest::More,
        };
        Ok(Reply {
            messages,
            came,
            rest,
        })
    }

    async fn wait(&self, _: &mut Option<()>) -> Result<bool, Fault> {
        sleep(Duration::from_millis(200)).await;
        match self.server().wait_fails {
            true => Err(Fault),
            false => Ok(true),
        }
    }

    async fn reread(
        &self,
        (): &mut (),
        _: &u64,
        ids: &[u64],
    ) -> Result<Vec<Option<(RawMessage, u32)>>, Fault> {
        let server = self.server();
        let read = |id: &u64| Some((RawMessage::new(""), server.attempts(*id)));
        Ok(ids.iter().map(read).collect())
    }

    async fn leave(&self, (): &mut (), _: &u64) -> Result<(), Fault> {
        if self.server().leave_hangs {
            pending::<()>().await;
        }
        let mut server = self.server();
        if std::mem::take(&mut server.leave_fails) {
            return Err(Fault);
        }
        let held = std::mem::take(&mut server.held);
        server.waiting.extend(held);
        server.left += 1;
        Ok(())
    }
}

type Position = WorkerPosition<u64>;
type Guard = Arc<dyn StartGuard<Position>>;

struct Rig {
    source: WorkerSource<Scripted>,
    system: Arc<Scripted>,
    guard: Guard,
}

impl Rig {
    async fn open(messages: u64, is_exact: bool) -> Self {
        let system = Arc::new(Scripted::default());
        system.server().waiting = (1..=messages).collect();
        system.server().is_exact = is_exact;
        let mut source = WorkerSource::<Scripted>::new(Arc::clone(&system));
        source.open().await.expect("it opens");
        let guard = source.start_guard().expect("it counts starts");
        Self {
            source,
            system,
            guard,
        }
    }

    fn set(&self, mode: Mode) {
        self.system.server().mode = mode;
    }

    async fn receive(&mut self, room: usize) -> Vec<Delivery<RawMessage, Position>> {
        let mut into = Deliveries::new(room, Instant::now() + Duration::from_secs(1));
        let received = self.source.receive(&mut into).await;
        received.expect("the source works");
        into.take()
    }

    async fn receive_one(&mut self) -> Delivery<RawMessage, Position> {
        self.receive(1).await.pop().expect("a message")
    }

    /// Has an attempt start, once it is noted.
    async fn start(&self, position: &Position, attempt: u32) {
        for _ in 0..100 {
            match self.guard.starts(0, position, attempt) {
                Ok(()) => return,
                Err(later) => sleep(later.wait()).await,
            }
        }
        panic!("attempt {attempt} never starts");
    }

    async fn settle(&mut self, position: Position, outcome: Outcome) {
        self.guard.settles(0, &position, outcome);
        let settled = [Settlement::new(position, outcome)];
        self.source.settle(&settled).await.expect("it is open");
    }

    /// The connection breaks, and the source is opened again.
    async fn reopen(&mut self) {
        self.set(Mode::LosesAnswer);
        self.fail().await;
        self.set(Mode::Answers);
        self.source.open().await.expect("it opens");
    }

    /// Receives until that fails.
    async fn fail(&mut self) {
        for _ in 0..100 {
            let mut into = Deliveries::new(0, Instant::now() + Duration::from_secs(1));
            if self.source.receive(&mut into).await.is_err() {
                return;
            }
        }
        panic!("it never fails");
    }

    /// How many exchanges there are in a second in which the source receives.
    async fn exchanges_in_a_second(&mut self, room: usize) -> u64 {
        let before = self.system.server().exchanges;
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(1) {
            let mut into = Deliveries::new(room, Instant::now() + Duration::from_secs(20));
            let left = Duration::from_secs(1).saturating_sub(since.elapsed());
            if let Ok(Err(error)) = timeout(left, self.source.receive(&mut into)).await {
                panic!("{error}");
            }
        }
        self.system.server().exchanges - before
    }
}

/// An attempt that was dropped, and then failed.
async fn fails_after_it_was_dropped(is_exact: bool) -> Rig {
    let mut rig = Rig::open(1, is_exact).await;
    let one = rig.receive_one().await;
    rig.start(&one.position, 1).await;
    rig.start(&one.position, 2).await;
    rig.reopen().await;
    let one = rig.receive_one().await;
    assert_eq!(one.attempts, 1, "the second one has not failed");
    rig.start(&one.position, 2).await;
    // It fails, and before the third one asks to start the connection breaks.
    let failed = Outcome::Returned { attempts: 2 };
    rig.set(Mode::LosesAnswer);
    rig.fail().await;
    rig.guard.settles(0, &one.position, failed);
    rig.set(Mode::Answers);
    rig.source.open().await.expect("it opens");
    rig
}

#[tokio::test(start_paused = true)]
async fn an_attempt_counts_that_failed_after_it_was_dropped() {
    for is_exact in [false, true] {
        let mut rig = fails_after_it_was_dropped(is_exact).await;
        assert_eq!(rig.receive_one().await.attempts, 2, "exact: {is_exact}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_counts_that_failed_without_a_note() {
    let mut rig = Rig::open(1, false).await;
    let one = rig.receive_one().await;
    rig.start(&one.position, 1).await;
    rig.start(&one.position, 2).await;
    // The second one is dropped.
    rig.settle(one.position, Outcome::Returned { attempts: 1 })
        .await;
    let one = rig.receive_one().await;
    assert_eq!(one.attempts, 1);
    // It starts without a note, and fails.
    rig.start(&one.position, 2).await;
    rig.settle(one.position, Outcome::Returned { attempts: 2 })
        .await;
    let one = rig.receive_one().await;
    assert_eq!(one.attempts, 2, "it has failed");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_noted_and_dropped_is_taken_back_for_other_workers() {
    let mut rig = Rig::open(1, true).await;
    let one = rig.receive_one().await;
    rig.start(&one.position, 1).await;
    rig.reopen().await;
    let one = rig.receive_one().await;
    assert_eq!(one.attempts, 0);
    rig.settle(one.position, Outcome::Returned { attempts: 0 })
        .await;
    rig.source.confirm().await.expect("it confirms");
    rig.source.close().await.expect("it leaves");
    assert_eq!(rig.system.server().attempts(1), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_read_again_has_the_attempts_that_count() {
    let mut rig = Rig::open(1, false).await;
    let one = rig.receive_one().await;
    rig.start(&one.position, 1).await;
    rig.start(&one.position, 2).await;
    rig.reopen().await;
    let one = rig.receive_one().await;
    let mut into = Deliveries::new(1, Instant::now());
    rig.source
        .reread(&[one.position], &mut into)
        .await
        .expect("it reads");
    let read = into.take().pop().expect("a message");
    assert_eq!((one.attempts, read.attempts), (1, 1));
}

async fn ends_at_once(mode: Mode) {
    let mut rig = Rig::open(1, false).await;
    let one = rig.receive_one().await;
    assert!(rig.guard.holds(&one.position));
    rig.set(mode);
    rig.system.server().is_away = true;
    rig.fail().await;
    assert!(rig.source.open().await.is_err());
    let starts = rig.guard.starts(0, &one.position, 1);
    assert!(
        !rig.guard.holds(&one.position) && starts.is_err(),
        "{mode:?}: holds {}, starts {}",
        rig.guard.holds(&one.position),
        starts.is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_worker_holds_nothing_before_it_has_a_connection_again() {
    ends_at_once(Mode::Lost).await;
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_worker_holds_nothing_before_it_has_a_connection_again() {
    ends_at_once(Mode::Forgotten).await;
}

#[tokio::test(start_paused = true)]
async fn no_attempt_starts_at_a_message_of_a_worker_before() {
    let mut rig = Rig::open(1, false).await;
    let one = rig.receive_one().await;
    rig.set(Mode::Lost);
    rig.fail().await;
    rig.set(Mode::Answers);
    rig.source.open().await.expect("it opens");
    assert!(!rig.guard.holds(&one.position));
    assert!(rig.guard.starts(0, &one.position, 1).is_err());
    assert!(rig.guard.starts(0, &one.position, 2).is_err());
    rig.source.confirm().await.expect("it confirms");
    assert_eq!(rig.system.server().noted.get(&1), None, "it is noted");
}

#[tokio::test(start_paused = true)]
async fn a_closed_source_holds_nothing() {
    let mut rig = Rig::open(1, false).await;
    let one = rig.receive_one().await;
    rig.source.close().await.expect("it leaves");
    assert!(!rig.guard.holds(&one.position));
    assert!(rig.guard.starts(0, &one.position, 1).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_ends_with_the_lease() {
    for mode in [Mode::Hangs, Mode::Panics, Mode::Unable, Mode::LosesAnswer] {
        let mut rig = Rig::open(1, false).await;
        let one = rig.receive_one().await;
        rig.set(mode);
        rig.settle(one.position, Outcome::Done).await;
        let confirmed = timeout(2 * LEASE, rig.source.confirm()).await;
        assert!(matches!(confirmed, Ok(Err(_))), "{mode:?}: {confirmed:?}");
        rig.set(Mode::Answers);
        rig.source.open().await.expect("it opens");
        rig.source.confirm().await.expect("it confirms");
        assert_eq!(rig.system.server().done, [1], "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_system_ends_the_session_at_once() {
    let mut rig = Rig::open(1, false).await;
    let one = rig.receive_one().await;
    rig.set(Mode::Panics);
    rig.settle(one.position, Outcome::Done).await;
    let since = Instant::now();
    rig.fail().await;
    assert!(
        since.elapsed() < Duration::from_millis(100),
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn returned_messages_that_are_blocked_are_asked_for_at_intervals() {
    let mut rig = Rig::open(2, false).await;
    let one = rig.receive_one().await;
    rig.set(Mode::Blocked);
    rig.settle(one.position, Outcome::Returned { attempts: 0 })
        .await;
    let count = rig.exchanges_in_a_second(5).await;
    assert!(count <= 15, "{count} exchanges");
    rig.set(Mode::Answers);
    assert_eq!(*rig.receive(5).await[0].position.id(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_entry_does_not_cost_the_lease() {
    let system = Arc::new(Scripted::default());
    system.server().enter_takes = LEASE * 7 / 10;
    let mut source = WorkerSource::<Scripted>::new(Arc::clone(&system));
    source.open().await.expect("it opens");
    let mut into = Deliveries::<RawMessage, Position>::new(0, Instant::now() + 4 * LEASE);
    let received = timeout(2 * LEASE, source.receive(&mut into)).await;
    assert!(received.is_err(), "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn returned_messages_are_asked_for_in_their_order() {
    let mut rig = Rig::open(3, false).await;
    let all = rig.receive(3).await;
    rig.set(Mode::Unable);
    for one in all.into_iter().rev() {
        rig.settle(one.position, Outcome::Returned { attempts: 0 })
            .await;
        let mut into = Deliveries::new(1, Instant::now() + LEASE);
        let limit = Duration::from_millis(150);
        assert!(timeout(limit, rig.source.receive(&mut into)).await.is_err());
    }
    assert_eq!(rig.system.server().asked, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_source_whose_close_was_dropped_leaves_when_it_is_closed_again() {
    let mut rig = Rig::open(1, false).await;
    let _one = rig.receive_one().await;
    rig.system.server().leave_hangs = true;
    assert!(timeout(LEASE, rig.source.close()).await.is_err());
    rig.system.server().leave_hangs = false;
    rig.source.close().await.expect("it leaves");
    assert_eq!(rig.system.server().left, 1);
}

/// Another worker gets the message, so this one must not count as acked.
#[tokio::test(start_paused = true)]
async fn an_ack_that_is_lost_with_the_worker_is_not_confirmed() {
    let mut rig = Rig::open(1, false).await;
    let one = rig.receive_one().await;
    rig.set(Mode::Lost);
    rig.settle(one.position, Outcome::Done).await;
    sleep(Duration::from_millis(10)).await;
    rig.set(Mode::Answers);
    let mut into = Deliveries::new(0, Instant::now());
    let received = rig.source.receive(&mut into).await;
    let is_confirmed = received.is_ok() && rig.source.confirm().await.is_ok();
    assert_eq!(rig.system.server().done, [0; 0]);
    assert!(!is_confirmed);
}

/// The driver drops the call when it has something else to do.
#[tokio::test(start_paused = true)]
async fn a_source_that_opens_itself_again_goes_on_after_a_dropped_call() {
    let mut rig = Rig::open(0, false).await;
    rig.receive(1).await;
    rig.set(Mode::LosesAnswer);
    sleep(LEASE / 2).await;
    rig.set(Mode::Answers);
    rig.system.server().enter_takes = Duration::from_millis(100);
    let mut into = Deliveries::new(1, Instant::now() + LEASE);
    let received = timeout(Duration::from_millis(50), rig.source.receive(&mut into)).await;
    assert!(received.is_err(), "{received:?}");
    rig.source.confirm().await.expect("there is nothing");
    rig.system.server().waiting = [1].into();
    let mut received = Vec::new();
    while received.is_empty() {
        received = rig.receive(1).await;
    }
    assert_eq!(*received[0].position.id(), 1);
}

/// An answer with a message was lost, and the driver stops before there is a new connection.
async fn is_closed_while_it_opens_itself_again() -> Rig {
    let mut rig = Rig::open(0, false).await;
    rig.receive(1).await;
    rig.system.server().waiting = [1].into();
    rig.set(Mode::LosesAnswer);
    sleep(LEASE / 2).await;
    assert_eq!(rig.system.server().held, [1].into());
    rig.system.server().enter_takes = Duration::from_millis(100);
    let mut into = Deliveries::new(1, Instant::now() + LEASE);
    let received = timeout(Duration::from_millis(50), rig.source.receive(&mut into)).await;
    assert!(received.is_err(), "{received:?}");
    rig.source.confirm().await.expect("there is nothing");
    rig
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_closed_while_it_opens_itself_again_leaves() {
    let mut rig = is_closed_while_it_opens_itself_again().await;
    rig.source.close().await.expect("it leaves");
    let server = rig.system.server();
    assert_eq!((server.left, &server.waiting), (1, &[1].into()));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_finds_no_connection_to_leave_is_closed_in_a_lease() {
    let mut rig = is_closed_while_it_opens_itself_again().await;
    rig.system.server().is_away = true;
    rig.source.close().await.expect_err("no connection");
    let mut rig = is_closed_while_it_opens_itself_again().await;
    rig.system.server().leave_hangs = true;
    let closed = timeout(2 * LEASE, rig.source.close()).await;
    closed.expect("in time").expect_err("no answer");
}

/// The source has not noticed yet that its connection broke.
#[tokio::test(start_paused = true)]
async fn a_source_whose_connection_broke_leaves_over_a_new_one() {
    let mut rig = Rig::open(2, false).await;
    let mut all = rig.receive(2).await;
    rig.set(Mode::Hangs);
    let one = all.remove(0).position;
    rig.settle(one, Outcome::Done).await;
    rig.system.server().leave_fails = true;
    rig.source.close().await.expect("it leaves");
    let server = rig.system.server();
    assert_eq!(
        (server.left, &server.done[..], &server.waiting),
        (1, &[1][..], &[2].into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_failed_before_the_source_opened_itself_again_recovers() {
    let mut rig = Rig::open(0, false).await;
    rig.system.server().wait_fails = true;
    let mut news = Vec::new();
    while news.is_empty() {
        let mut into = Deliveries::new(1, Instant::now() + LEASE);
        rig.source.receive(&mut into).await.expect("it works");
        news = into.take_parts();
    }
    assert!(matches!(news[..], [PartNews::Failed { .. }]), "{news:?}");
    rig.system.server().wait_fails = false;
    rig.set(Mode::LosesAnswer);
    sleep(LEASE / 2).await;
    rig.set(Mode::Answers);
    let mut into = Deliveries::new(1, Instant::now() + LEASE);
    rig.source.receive(&mut into).await.expect("it works");
    let news = into.take_parts();
    assert!(matches!(news[..], [PartNews::Recovered { .. }]), "{news:?}");
}
