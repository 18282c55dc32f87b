//! How much at once, and how often: concurrency, capacities, rates, priority.

use super::settings::Builder;
use crate::adaptive::Adaptive;
use crate::engine::Overflow;
use crate::rate::Rate;

impl<K, M, E, F, S> Builder<K, M, E, F, S> {
    /// Sets the maximum number of handlers in flight.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.config.concurrency = handlers;
        self
    }

    /// Lets the number of handlers in flight follow the latency of the handler.
    ///
    /// It replaces [`concurrency`](Self::concurrency), which then has no effect; the limit starts
    /// at [`Adaptive::initial`]. A limit that shrinks drops no handler: those in flight go on, and
    /// nothing new starts until there are few enough.
    /// [`Stats::concurrency_limit`](crate::watching::Stats::concurrency_limit) is the current
    /// limit.
    pub fn adaptive_concurrency(mut self, adaptive: Adaptive) -> Self {
        self.config.settings.adaptive = Some(adaptive);
        self
    }

    /// Sets whether handlers block their thread in place, inside `tokio::task::block_in_place`. The
    /// default is `false`.
    ///
    /// As many handlers are polled at once as the runtime has workers: more could not be. While a
    /// handler blocks in place, Tokio gives its worker another thread, so there more are. With this
    /// setting only [`concurrency`](Self::concurrency) limits them, as if each had a task of its
    /// own. Handlers that never wait then cost more, because more runners take turns.
    ///
    /// Prefer `spawn_blocking`, and await that: it needs no such setting.
    pub fn blocking_handlers(mut self, blocking: bool) -> Self {
        self.config.blocking = blocking;
        self
    }

    /// Sets whether senders put messages into a few queues, by the hash of their key, instead of
    /// one channel. The default is `false`.
    ///
    /// With the channel one task places all messages in their lanes. With the striped intake the
    /// tasks that run the handlers do. Everything that this crate promises holds for both. The
    /// striped intake is faster if several senders [`submit`](crate::Dispatcher::submit), and
    /// answers sooner if a sender awaits each answer before it sends the next message. The channel
    /// is faster with one sender that does not wait. It is better if handlers block their thread:
    /// messages are placed meanwhile, so the depth of a lane and its limit are exact.
    ///
    /// Not together with [`hash_lanes`](crate::Dispatcher::hash_lanes).
    pub fn striped_intake(mut self, striped: bool) -> Self {
        self.config.striped = Some(striped);
        self
    }

    /// Sets the maximum number of messages that are accepted and not settled. Stalled messages
    /// count separately, see [`stalled_capacity`](Self::stalled_capacity).
    pub fn capacity(mut self, messages: usize) -> Self {
        self.config.settings.capacity = messages;
        self
    }

    /// Sets the maximum number of bytes that are accepted and not settled.
    ///
    /// `size` returns the bytes of a message. It is called once per message, in the task that sends
    /// it.
    pub fn capacity_bytes(
        mut self,
        bytes: usize,
        size: impl Fn(&M) -> usize + Send + Sync + 'static,
    ) -> Self {
        self.config.settings.capacity_bytes = Some(bytes);
        self.config.weigh = Some(Box::new(size));
        self
    }

    /// Sets the maximum number of stalled messages, which do not count against the
    /// [`capacity`](Self::capacity): those in lanes that back off, are halted, or are above their
    /// limit.
    ///
    /// Stalled messages give their room in the capacity back while they wait, so that failing and
    /// flooded keys do not stop the others. Stalled messages beyond this number count against the
    /// capacity again, so memory stays bounded by `capacity + stalled_capacity` messages.
    pub fn stalled_capacity(mut self, messages: usize) -> Self {
        self.config.stalled_capacity = Some(messages);
        self
    }

    /// Sets the maximum number of messages of one key, its head included, and what happens at that
    /// limit.
    ///
    /// With `Wait` and `Reject` the senders hold back once the dispatcher has *seen* the lane full.
    /// Messages that are in the channel by then still come in, so a lane can exceed its limit by
    /// what the channel holds, plus one message for each sender on its way. `DropOldest` and
    /// `DeadLetter` are exact. The limit counts messages, whatever their size: where some are
    /// large, a blocked key can take this many times the largest one out of
    /// [`capacity_bytes`](Self::capacity_bytes).
    pub fn lane_capacity(mut self, messages: usize, overflow: Overflow) -> Self {
        self.config.lane_capacity = Some(messages);
        self.config.settings.overflow = overflow;
        self
    }

    /// Sets how many messages of one lane a runner handles in a row while other lanes are ready.
    pub fn quantum(mut self, messages: u32) -> Self {
        self.config.settings.quantum = messages;
        self
    }

    /// Limits how many attempts all keys together start, and how many of them at once.
    ///
    /// A lane that waits for the rate is only ready: it holds no runner and takes nothing of the
    /// [`concurrency`](Self::concurrency). Lanes start in the order in which they became ready, and
    /// a lane that goes on after its first message asks for each further one. Every attempt counts,
    /// also a retry and one that is dropped at its time-out; the delivery of a dead letter to its
    /// sink does not.
    ///
    /// `drain` keeps the rate, and takes as long as that takes; give it a deadline
    /// ([`Shutdown::within`](crate::Shutdown::within)). Messages that `close` and `abort` hand back
    /// do not wait.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use keylane::{Dispatcher, Rate};
    ///
    /// // The partner allows 100 calls a second, and does not mind 20 at once.
    /// let calls = Dispatcher::builder(|call: &(u64, String)| call.0)
    ///     .rate(Rate::per_second(100).burst(20))
    ///     .spawn(|_: (u64, String)| async move { Ok::<(), std::io::Error>(()) })?;
    /// # calls.drain().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rate(mut self, rate: Rate) -> Self {
        self.config.settings.rate = Some(rate);
        self
    }

    /// Limits how often handlers of one key start. A key above its rate waits: it holds no runner,
    /// and its messages are stalled. Retries are not counted, a batch counts as one.
    ///
    /// Each key has its own burst. Messages without a key have no limit. The lane of an idle key is
    /// removed; its rate is remembered in a few bytes until it has recovered.
    pub fn rate_per_key(mut self, rate: Rate) -> Self {
        self.config.rate_per_key = Some(rate);
        self
    }

    /// Starts urgent lanes first.
    ///
    /// `class` returns how urgent a message is, from 0, the most urgent, to `classes - 1`. Anything
    /// above counts as the last class. There are at most 8 classes. `class` is called once per
    /// message, in the task that sends it.
    ///
    /// Guarantees:
    ///
    /// - The order of a key never changes. A lane has the class of its head, whatever is behind it:
    ///   an urgent message waits for the ones before it. A message that
    ///   [`LaneControl::replace`](crate::LaneControl::replace) puts in the place of another keeps
    ///   the class of that one.
    /// - Of the lanes that are *ready*, the most urgent class starts first; within a class, the
    ///   lane that became ready first. A handler in flight is not interrupted, and all classes
    ///   share the [`concurrency`](Self::concurrency), the [`capacity`](Self::capacity) and the
    ///   [`rate`](Self::rate).
    /// - No class starves: while one of its lanes is ready, it is passed over at most 16 times in a
    ///   row, then one of its lanes starts. A lane that goes on with its next message counts as one
    ///   of those times.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use keylane::Dispatcher;
    ///
    /// struct Mail { user: u64, is_receipt: bool }
    ///
    /// let mails = Dispatcher::builder(|mail: &Mail| mail.user)
    ///     .priority(2, |mail| if mail.is_receipt { 0 } else { 1 })
    ///     .spawn(|_: Mail| async move { Ok::<(), std::io::Error>(()) })?;
    /// mails.send(Mail { user: 7, is_receipt: true }).await?;
    /// # mails.drain().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn priority(
        mut self,
        classes: u8,
        class: impl Fn(&M) -> u8 + Send + Sync + 'static,
    ) -> Self {
        let last = classes.saturating_sub(1);
        self.config.settings.classes = classes;
        self.config.class = Some(Box::new(move |message| class(message).min(last)));
        self
    }
}
