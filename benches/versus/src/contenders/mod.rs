//! Everything that is measured, behind one trait.
//!
//! Each contender is used the way its own documentation shows it, with the same limits wherever it
//! has such a limit: [`Limits`]. Where there was a choice (a try before a wait, tracing on or off,
//! the size of a mailbox), the faster one was taken.

mod floor;
mod future_queue;
mod grommet;
mod kameo;
mod keyed_lock;
mod keylane;
pub mod naive_queue;
mod per_key;
mod ractor;
mod spawn;
mod static_hash;

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use tokio::sync::oneshot;

use crate::measure::{Asked, Errand};
use crate::work::{
    Ask, BlockedKey, CappedSleep, Echo, Empty, Handler, HotKey, Sleep, Spin, Tick, Wait, WaitWide,
    Work, Yield,
};

/// What a contender may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Handlers in flight at once.
    pub concurrency: usize,
    /// Messages waiting, over all keys.
    pub capacity: usize,
    /// Messages waiting for one key, where each key has a queue of its own.
    pub lane: usize,
    /// Keys are `0..keys`; for contenders that must know them beforehand.
    pub keys: u64,
}

/// One way to dispatch messages.
///
/// A value is one sender's handle. The contender ends with its runtime and its last handle.
pub trait Contender<W: Work>: Clone + Send + Sync + Sized + 'static {
    /// Starts it on the current runtime.
    fn start(limits: Limits) -> impl Future<Output = Self> + Send;

    /// Sends one message, and waits for room first where there is a limit.
    fn send(&mut self, message: W::Message) -> impl Future<Output = ()> + Send;
}

/// A contender that can be asked, by its own means or with a channel inside the message.
pub trait Answers: Contender<Echo> {
    /// Sends a message and waits for the handler's answer.
    fn ask(&mut self, key: u64) -> impl Future<Output = ()> + Send {
        async move {
            let (reply, answer) = oneshot::channel();
            self.send(Ask {
                key,
                reply: Some(reply),
            })
            .await;
            answer
                .await
                .expect("every message is answered while the runtime lives");
        }
    }
}

/// A future whose type nobody needs to know.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A contender that runs, its type forgotten: the harness is compiled once, not once for each pair
/// of contender and handler. Within an errand nothing is boxed.
pub trait Running: Send + Sync {
    /// Sends the messages of an errand, through a handle of its own.
    fn send(&self, errand: Errand) -> Boxed<()>;
}

/// The same, for the contenders' answers.
pub trait Answering: Send + Sync {
    /// Asks so many questions, one after the other.
    fn ask(&self, questions: u64) -> Boxed<Asked>;
}

struct Started<C, W>(C, PhantomData<W>);

impl<W: Work<Message = Tick>, C: Contender<W>> Running for Started<C, W> {
    fn send(&self, errand: Errand) -> Boxed<()> {
        let mut handle = self.0.clone();
        Box::pin(async move {
            for i in errand.range.clone() {
                handle.send(errand.tick(i)).await;
            }
        })
    }
}

impl<C: Answers> Answering for Started<C, Echo> {
    fn ask(&self, questions: u64) -> Boxed<Asked> {
        let mut handle = self.0.clone();
        Box::pin(async move {
            let mut asked = Asked::new();
            for i in 0..questions {
                handle.ask(i % Asked::KEYS).await;
                asked.answered();
            }
            asked
        })
    }
}

async fn start<W: Work<Message = Tick>, C: Contender<W>>(limits: Limits) -> Box<dyn Running> {
    Box::new(Started(C::start(limits).await, PhantomData::<W>))
}

async fn start_answering<C: Answers>(limits: Limits) -> Box<dyn Answering> {
    Box::new(Started(C::start(limits).await, PhantomData))
}

macro_rules! contenders {
    ($($(#[doc = $doc:literal])* $id:ident = $name:literal, $ordered:literal, $type:path;)*) => {
        /// The contenders, in the order of the tables.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Id {
            $($(#[doc = $doc])* $id,)*
        }

        impl Id {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$id),*];

            /// As tables and `--contender` spell it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$id => $name,)* }
            }

            /// Whether it promises the order of one key's messages.
            pub fn keeps_order(self) -> bool {
                match self { $(Self::$id => $ordered,)* }
            }

            /// What it is, in one line.
            pub fn about(self) -> &'static str {
                match self { $(Self::$id => concat!($($doc),*).trim_ascii(),)* }
            }

            fn start_with<W: Work<Message = Tick>>(self, limits: Limits) -> Boxed<Box<dyn Running>> {
                match self { $(Self::$id => Box::pin(start::<W, $type>(limits)),)* }
            }

            /// Starts it on the current runtime, for questions.
            pub fn start_answering(self, limits: Limits) -> Boxed<Box<dyn Answering>> {
                match self { $(Self::$id => Box::pin(start_answering::<$type>(limits)),)* }
            }
        }
    };
}

contenders! {
    /// One bounded channel, one loop that receives and handles; no keys.
    Floor = "floor", true, floor::Floor<_>;
    /// The floor, receiving up to 256 messages at once.
    FloorMany = "floor-many", true, floor::FloorMany<_>;
    /// `tokio::spawn` per message behind a semaphore.
    Spawn = "spawn", false, spawn::Spawn<_>;
    /// 64 workers, each with a channel; worker = hash(key) mod 64.
    StaticHash = "static-64", true, static_hash::StaticHash<_>;
    /// A channel and a task per key, kept for ever; no limit over all keys.
    PerKey = "channel-per-key", true, per_key::PerKey<_>;
    /// `for_each_concurrent` and a lock per key, in one task.
    KeyedLock = "keyed-lock", true, keyed_lock::KeyedLocks<_>;
    /// A kameo actor per key, kept for ever; no limit over all keys.
    Kameo = "kameo", true, kameo::ActorPerKey<_>;
    /// A ractor factory of 64 workers, key-persistent routing, a semaphore before its intake.
    Ractor = "ractor", true, ractor::KeyPersistent<_>;
    /// Grommet with 2 shards on threads of their own, `try_submit` until there is room.
    Grommet = "grommet", true, grommet::Shards<_>;
    /// future-queue with a group of weight 1 per key, in one task; keys known beforehand.
    FutureQueue = "future-queue", true, future_queue::Grouped<_>;
    /// keylane, `send`.
    Keylane = "keylane", true, keylane::Plain<_>;
    /// keylane, `submit`, and every receipt awaited.
    KeylaneSubmit = "keylane-submit", true, keylane::Submit<_>;
    /// keylane, `send`, with retries and a lane capacity.
    KeylaneFull = "keylane-full", true, keylane::Full<_>;
    /// keylane, `send`, with foldhash instead of SipHash.
    KeylaneFoldhash = "keylane-foldhash", true, keylane::Foldhash<_>;
}

impl Id {
    /// Whether it is one of ours.
    pub fn is_keylane(self) -> bool {
        matches!(
            self,
            Self::Keylane | Self::KeylaneSubmit | Self::KeylaneFull | Self::KeylaneFoldhash
        )
    }

    /// Whether it is what others are measured against, and no rival.
    pub fn is_control(self) -> bool {
        matches!(self, Self::Floor | Self::FloorMany | Self::Spawn)
    }

    /// Whether handlers of different keys can run at the same time.
    pub fn is_serial(self) -> bool {
        matches!(self, Self::Floor | Self::FloorMany)
    }

    /// Whether handlers of different keys can run on different cores.
    pub fn is_one_task(self) -> bool {
        self.is_serial() || matches!(self, Self::KeyedLock | Self::FutureQueue)
    }

    /// Whether there is no limit on handlers in flight over all keys.
    pub fn is_uncapped(self) -> bool {
        matches!(self, Self::PerKey | Self::Kameo)
    }

    /// Whether it keeps something for each key it has ever seen.
    pub fn keeps_keys(self) -> bool {
        self.is_uncapped()
    }

    /// Whether the number of handlers in flight is the number of its workers.
    pub fn has_workers(self) -> bool {
        matches!(self, Self::StaticHash | Self::Ractor)
    }

    /// Starts it on the current runtime.
    pub fn start(self, handler: Handler, limits: Limits) -> Boxed<Box<dyn Running>> {
        match handler {
            Handler::Empty => self.start_with::<Empty>(limits),
            Handler::Yield => self.start_with::<Yield>(limits),
            Handler::Spin => self.start_with::<Spin>(limits),
            // These two would otherwise run more handlers at once than the others may.
            Handler::Sleep if self == Self::PerKey => {
                Box::pin(start::<CappedSleep, per_key::PerKey<_>>(limits))
            }
            Handler::Sleep if self == Self::Kameo => {
                Box::pin(start::<CappedSleep, kameo::ActorPerKey<_>>(limits))
            }
            Handler::Sleep => self.start_with::<Sleep>(limits),
            Handler::BlockedKey => self.start_with::<BlockedKey>(limits),
            Handler::HotKey => self.start_with::<HotKey>(limits),
            Handler::Wait => self.start_with::<Wait>(limits),
            Handler::WaitWide => self.start_with::<WaitWide>(limits),
        }
    }
}
