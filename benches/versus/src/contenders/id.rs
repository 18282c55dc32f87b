//! The contenders by name.

use super::{
    floor, future_queue, grommet, kameo, keyed_lock, keylane, per_key, ractor, spawn, static_hash,
};
use crate::contender::{Answering, Boxed, Running, start, start_answering};
use crate::limits::Limits;
use crate::message::{FILL_256, FILL_1024, Tick};
use crate::work::{
    BlockInPlace, BlockedKey, BlockingKey, CappedSleep, Channel, Empty, Handler, HotKey, HotKeys,
    Sleep, Spin, Unpack, Wait, WaitWide, Work, Yield,
};

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

            fn start_with<W>(self, limits: Limits) -> Boxed<Box<dyn Running>>
            where
                W: Work<Message: From<Tick>>,
            {
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
    /// keylane, `send`, with the striped intake.
    KeylaneStriped = "keylane-striped", true, keylane::Striped<_>;
    /// keylane, `submit`, with the striped intake.
    KeylaneStripedSubmit = "keylane-striped-submit", true, keylane::Submit<_, true>;
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
            Self::Keylane
                | Self::KeylaneSubmit
                | Self::KeylaneStriped
                | Self::KeylaneStripedSubmit
                | Self::KeylaneFull
                | Self::KeylaneFoldhash
        )
    }

    /// Whether it is the one of its kind that stands for all of it, where not everyone is measured.
    pub fn is_typical(self) -> bool {
        matches!(
            self,
            Self::Floor
                | Self::Spawn
                | Self::StaticHash
                | Self::KeyedLock
                | Self::Grommet
                | Self::Keylane
                | Self::KeylaneSubmit
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
            Handler::Empty256 => self.start_with::<Unpack<FILL_256>>(limits),
            Handler::Empty1024 => self.start_with::<Unpack<FILL_1024>>(limits),
            Handler::Channel => self.start_with::<Channel>(limits),
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
            Handler::HotKeys => self.start_with::<HotKeys<false>>(limits),
            Handler::HotSleepers => self.start_with::<HotKeys<true>>(limits),
            Handler::BlockingKey => self.start_with::<BlockingKey>(limits),
            Handler::BlockInPlace => self.start_with::<BlockInPlace>(limits),
            Handler::Wait => self.start_with::<Wait>(limits),
            Handler::WaitWide => self.start_with::<WaitWide>(limits),
        }
    }
}
