//! What the handlers of the measurements do.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};

use crate::limits::CONCURRENCY;
use crate::message::{Ask, Parcel, Tick};
use crate::probe;

/// The handlers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// [`Empty`].
    Empty,
    /// [`Unpack`] of 256 bytes.
    Empty256,
    /// [`Unpack`] of 1 KiB.
    Empty1024,
    /// [`Channel`].
    Channel,
    /// [`Yield`].
    Yield,
    /// [`Spin`].
    Spin,
    /// [`Sleep`], or [`CappedSleep`].
    Sleep,
    /// [`BlockedKey`].
    BlockedKey,
    /// [`HotKey`].
    HotKey,
    /// [`HotKeys`] that do nothing.
    HotKeys,
    /// [`HotKeys`] that sleep.
    HotSleepers,
    /// [`BlockingKey`].
    BlockingKey,
    /// [`BlockInPlace`].
    BlockInPlace,
    /// [`Wait`].
    Wait,
    /// [`WaitWide`].
    WaitWide,
}

impl Handler {
    /// As the name of a workload spells it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Empty256 => "empty-256b",
            Self::Empty1024 => "empty-1kib",
            Self::Channel => "channel",
            Self::Yield => "yield",
            Self::Spin => "cpu-5us",
            Self::Sleep => "sleep-1ms",
            Self::BlockedKey => "blocked",
            Self::HotKey | Self::HotKeys | Self::HotSleepers => "hot",
            Self::BlockingKey => "blocking",
            Self::BlockInPlace => "block-in-place",
            Self::Wait | Self::WaitWide => "wait",
        }
    }
}

/// A handler. Always a type without fields, so that handing it to a task costs nothing.
pub trait Work: Copy + Default + Send + Sync + 'static {
    /// What it handles.
    type Message: Clone + Send + Sync + 'static;

    /// What orders the message.
    fn key(message: &Self::Message) -> u64;

    /// Handles one message.
    fn run(self, message: Self::Message) -> impl Future<Output = ()> + Send + 'static;
}

/// Does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Empty;

impl Work for Empty {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        probe::start(&tick);
        probe::end(&tick);
    }
}

/// Does nothing with a larger message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unpack<const FILL: usize>;

impl<const FILL: usize> Work for Unpack<FILL> {
    type Message = Parcel<FILL>;

    fn key(parcel: &Parcel<FILL>) -> u64 {
        parcel.tick.key
    }

    async fn run(self, parcel: Parcel<FILL>) {
        probe::start(&parcel.tick);
        std::hint::black_box(&parcel.fill);
        probe::end(&parcel.tick);
    }
}

/// Receives from a channel that has its message already: ready at once, but Tokio counts it
/// against the budget of the task.
///
/// The channel is the handler's own, since one that all handlers share would be measured, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Channel;

impl Work for Channel {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        probe::start(&tick);
        let (sender, receiver) = oneshot::channel();
        // The receiver is in the next line.
        let _ = sender.send(tick.seq);
        let _ = std::hint::black_box(receiver.await);
        probe::end(&tick);
    }
}

/// Is pending once, and woken at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Yield;

impl Work for Yield {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        probe::start(&tick);
        PendOnce(false).await;
        probe::end(&tick);
    }
}

/// Keeps a core busy for 5 µs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spin;

impl Work for Spin {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        probe::start(&tick);
        burn(*FIVE_MICROSECONDS.get_or_init(calibrate));
        probe::end(&tick);
    }
}

/// Sleeps for 1 ms.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sleep;

impl Work for Sleep {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        probe::start(&tick);
        tokio::time::sleep(Duration::from_millis(1)).await;
        probe::end(&tick);
    }
}

/// Sleeps for 1 ms, at most [`CONCURRENCY`] of them at once: for contenders that
/// know no limit over all keys and would otherwise be compared with a higher one.
#[derive(Clone, Copy, Debug, Default)]
pub struct CappedSleep;

static CAP: Semaphore = Semaphore::const_new(CONCURRENCY);

impl Work for CappedSleep {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        probe::start(&tick);
        let _slot = CAP.acquire().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        probe::end(&tick);
    }
}

/// Key 0 never ends; every other key does nothing. Records the latency of messages with a due time.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockedKey;

impl Work for BlockedKey {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        if tick.key == 0 {
            probe::gate().await;
            return;
        }
        probe::start(&tick);
        if tick.due != 0 {
            probe::late(&tick);
        }
        probe::end(&tick);
    }
}

/// Sleeps for 1 ms, and records the latency of messages with a due time. Key 0 is the hot one: it
/// is not counted, and what is left of its backlog at the end of the measurement is skipped.
#[derive(Clone, Copy, Debug, Default)]
pub struct HotKey;

impl Work for HotKey {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        if probe::is_open() {
            return;
        }
        if tick.key == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            return;
        }
        probe::start(&tick);
        tokio::time::sleep(Duration::from_millis(1)).await;
        if tick.due != 0 {
            probe::late(&tick);
        }
        probe::end(&tick);
    }
}

/// The keys below this one may be hot in [`HotKeys`].
pub const HOT_KEYS: u64 = 64;

/// Does nothing, or sleeps for 1 ms. The hot keys are not counted, and what is left of their
/// backlog at the end of the measurement is skipped.
#[derive(Clone, Copy, Debug, Default)]
pub struct HotKeys<const SLEEPS: bool>;

impl<const SLEEPS: bool> Work for HotKeys<SLEEPS> {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        if probe::is_open() {
            return;
        }
        probe::start(&tick);
        if SLEEPS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if tick.key < HOT_KEYS {
            probe::leave(&tick);
        } else {
            probe::end(&tick);
        }
    }
}

/// Key 0 blocks its thread for 1 ms, and is not counted; every other key does nothing. Records how
/// long messages with a due time have waited for their handler.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockingKey;

impl Work for BlockingKey {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        probe::start(&tick);
        if tick.key == 0 {
            std::thread::sleep(Duration::from_millis(1));
            probe::leave(&tick);
            return;
        }
        if tick.due != 0 {
            probe::late(&tick);
        }
        probe::end(&tick);
    }
}

/// Blocks its thread for 50 ms, and tells Tokio so.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockInPlace;

impl Work for BlockInPlace {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        // Once the measurement is over, what is left of it need not block.
        if probe::is_open() {
            return;
        }
        probe::start(&tick);
        tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(50)));
        probe::end(&tick);
    }
}

/// Waits at the gate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait;

impl Work for Wait {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, _: Tick) {
        probe::started_waiting();
        probe::gate().await;
        probe::done();
    }
}

/// Waits at the gate with 1 KiB in its hands, as a handler with a request and a buffer does.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitWide;

impl Work for WaitWide {
    type Message = Tick;

    fn key(tick: &Tick) -> u64 {
        tick.key
    }

    async fn run(self, tick: Tick) {
        let buffer = [tick.seq as u8; 1024];
        probe::started_waiting();
        probe::gate().await;
        std::hint::black_box(&buffer);
        probe::done();
    }
}

/// Answers at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Work for Echo {
    type Message = Ask;

    fn key(ask: &Ask) -> u64 {
        ask.key
    }

    async fn run(self, ask: Ask) {
        if let Some(reply) = ask.reply {
            // The asking task may be gone when the runtime shuts down.
            let _ = reply.send(());
        }
    }
}

/// Pending at its first poll, with its waker already called.
struct PendOnce(bool);

impl Future for PendOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

static FIVE_MICROSECONDS: OnceLock<u32> = OnceLock::new();

/// Measures the CPU handler once, before anything else needs the cores.
pub fn warm_up() {
    FIVE_MICROSECONDS.get_or_init(calibrate);
}

/// Turns of [`burn`] that take 5 µs here. Work, not time: a handler that is pushed off its core
/// still has all of it to do.
fn calibrate() -> u32 {
    const TURNS: u32 = 1_000_000;
    let fastest = (0..5)
        .map(|_| {
            let began = Instant::now();
            burn(TURNS);
            began.elapsed()
        })
        .min()
        .unwrap_or_default();
    let ns = fastest.as_nanos().max(1) as f64 / f64::from(TURNS);
    (5_000.0 / ns) as u32
}

fn burn(turns: u32) {
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..turns {
        x = std::hint::black_box(x.wrapping_mul(0xD134_2543_DE82_EF95).rotate_left(23));
    }
}
