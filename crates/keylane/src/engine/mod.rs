//! The engine moves messages between the channel, the lanes and the handlers.
//!
//! ```text
//!  senders ──► channel ──► router ──► lanes ──► ready queue ──► runner ──► settle
//!                            ▲                        ▲            │
//!                            │                        └── the next ┤ of its lane
//!                            └────── timers ◄──── a retry later ───┘
//! ```
//!
//! With the striped intake, the way into the lanes is another one: senders put messages into the
//! stripe of their key, and the runner that takes the turn of a stripe places them.
//!
//! # Where to look
//!
//! `shared.rs` has the engine itself: its parts, the ready queue and the runners; `launch.rs`
//! starts it. `message/` has the forms of a message, `lane.rs` the types of the lanes,
//! `settings.rs` the checked options of the builder. Each part owns what it works on, and calls
//! only parts above it here:
//!
//! - `room.rs` counts the capacity and the stalled messages; `clocks.rs` holds the timers, with
//!   `later.rs` (delayed messages) and `laneless.rs` (failed ones without a lane); `probe/`,
//!   `events/` and `watchdog.rs` observe; `sources/` has the outboxes of sources; `slow_path.rs`
//!   says whether a job is looked at before it starts; `end/` how far the end has come.
//! - `settlement/` settles a message, or hands it back. Nothing else does.
//! - `table/` has the lanes. [`keylane_lanes`] decides; `step.rs` lets it decide under the lock of
//!   the shard, and applies what must be seen with it. `memory.rs` remembers versions and rates of
//!   keys without lanes; `evict.rs` takes messages out of their lanes at the end; `inspect.rs` says
//!   why a key waits.
//! - `decisions/` carries out the rest of a decision, once the lock is released: `apply.rs` is the
//!   loop. `advance.rs` moves a lane on, `hold.rs` and `unleased.rs` hold a head in it, `left.rs`
//!   says what becomes of a message that leaves without having run, `merge.rs` makes one of two,
//!   `due.rs` handles timers. All of them return what starts next.
//! - `failures/` decides about failed attempts and batches.
//! - `starts/` decides which job of a lane starts: `choose.rs` asks the lane, the clock and the
//!   operator, `admit.rs` the source and the lease.
//!
//! What gives them work:
//!
//! - `intake/`: the router takes messages from the channel, and due timers; `place.rs` places a
//!   message in its lane, or in the ready queue as the first one of a new lane; `stripes.rs` and
//!   `turns.rs` are the striped intake. What plain messages never meet is in `by_plan.rs` and
//!   `detours.rs`. `retries.rs` lets retries out as fast as their budget allows, `store.rs` asks
//!   the version store.
//! - `run/`: `task.rs` is the loop of a runner, to be read first; `runner.rs` gives it its next
//!   job; `poll.rs` is one poll; `in_flight.rs` has a message while its handler runs, `letter.rs`
//!   while a sink has it.
//! - `leases/` acquires leases, `reshard/` changes the number of lanes, `admin/` carries out an
//!   operator's decision, `revoke.rs` takes messages back for their source.
//!
//! # Ownership and locks
//!
//! 1. A message is owned by exactly one of: the channel, a stripe or who has its turn, the router,
//!    a lane, the ready queue, the delayed messages, the jobs without a lane that wait for a retry
//!    or a sink, a runner; or by the message that it was merged into, or is batched with. It is
//!    moved and never shared.
//! 2. Only the router, and the runner that has the turn of a stripe, place new messages in lanes; a
//!    runner may put its own back. Only they and `pause` create a lane. The task that settles a
//!    head moves its lane on or removes it.
//! 3. Under a shard's lock these are locked, and nothing under them: the spare backlogs, what keys
//!    remember (versions, rates), the list of drained lanes, the room in bytes. The table of leases
//!    locks shards, and is never locked under one. User wakers are never woken under a lock.

// # Decisions and effects
//
// A lane decides under the lock of its shard. It writes what follows into one `Effects`, in place,
// because moving that value cost a quarter of a decision. `Effects` says what goes out, what
// settles and why, which gauges change, which timer to arm, which senders to let in, and whether
// the lane goes. `LaneTable::step` carries out, under the same lock, what other threads must see
// together with the decision: gauges, room, what the key remembers. `Decisions::apply` does the
// rest after the lock is released. No waker runs in between.
//
// A plain lane that has never been full, paused or marked takes a short way: `park` and `finish` of
// the same lane, with one visit to the shard to enter and one to leave. It is the fast path of the
// same code: `LaneMap::enter` and `Decisions::advance`.
//
// A dispatcher that has fallen behind must not become slower by that, or it stays behind. So
// emptied deques are kept for other lanes, up to 4 MiB of them (`lane/backlog.rs` in
// `keylane-lanes`). With 256 of them each message cost an allocation where 10,000 lanes hold a few
// messages each. And a runner returns the room of up to 128 messages at once (`Tally`), because
// each return may wake a sender that waits.
//
// What a key remembers outlives its lane and costs no lane: versions (`discipline/versions.rs`),
// and rates as one word (`rate/memory.rs`). Both are bounded. At the limit of the rates senders
// wait.
//
// # Why it is fast
//
// - The sender hashes a message, once. The message is moved whole, and few times. On the plain way
//   nothing reads what it carries beyond its key: a read right behind the copy costs some 5 ns.
// - A runner polls the handler in its own task. A handler that is ready at once costs no task. A
//   handler that is pending makes its runner the task of its lane. No more runners take jobs
//   than there are workers.
// - An obligation stores one of receipt, version and lifetime. With two of them, with merged
//   messages or with the members of a batch it uses a box, which most messages do not have.
// - One runner serves single messages and batches, over the trait `Invoke`. Its future takes 280
//   bytes for a tiny handler of 136 bytes and a message of 24; two runners took 424. With Tokio's
//   task that is 384 bytes for each message in flight, without its lane. A bare task takes 256.
//
// # Two intakes
//
// One router reads one channel. Every message passes one task more than it has to, and on many
// cores that task is the ceiling. The striped intake has no such task: a stripe with messages has
// an entry in the ready queue, and the runner that takes it places up to 64 of them. What that
// makes ready goes into the ready queue, from which every runner takes, so no handler that blocks
// keeps anything. Without a permit no runner may run, but messages must be placed all the same (a
// lane may merge, refuse or let them expire): the router does that when no runner may be recruited.
//
// It was measured on two cores (2026-11-28, `versus`, five rounds, empty handlers, ns): four
// senders and 1,000 keys 320 with the channel and 290 with a stripe; 424 and 281 if each message is
// submitted; one sender 271 and 388. A turn of few messages recruits a second runner and steps
// aside for it, or a handler that blocks would keep the recruit on its own worker: that is what one
// sender loses. Without it a message took 208, and a test of blocked handlers failed. With two
// stripes a message took 330 to 370 even so, because batches are smaller and each takes the lock of
// the ready queue. Runners that look again before they become idle, up to 16 times, and need not be
// recruited meanwhile, did not help: 297 in place of 294, and 20 % more with the channel.
//
// Jobs that stay with their runner, in a slot from which others steal, were tried: with the channel
// 10 % slower, because each job passes one lock more; with a stripe, without any lock and so
// without a thief, 5 % faster. That is the most that slots could gain.

mod shared;
pub(crate) use shared::{Engine, Parts, Spawn};

mod launch;
pub(crate) use launch::launch;

mod message;
pub(crate) use message::{Accepted, Obligation, Reply};

mod settings;
pub use settings::Overflow;
pub(crate) use settings::{Settings, Share};

// The way of a message.
mod intake;
pub(crate) use intake::stripes_for;

mod lane;
pub(crate) use lane::{Gate, Lane};

mod table;

mod decisions;

mod failures;

mod starts;

mod run;
pub(crate) use run::{Batches, Invoke, Runner, Single, run};

mod settlement;
pub(crate) use settlement::Tally;

mod laneless;

mod slow_path;
pub(crate) use slow_path::GuardedStarts;

mod sources;
pub(crate) use sources::{
    Asked, Front, LetterRequest, News, NotKept, OriginsRequest, Registration, Revoked, SlotGuard,
    SourceSlot,
};

mod leases;

mod revoke;

// What an operator, a resize and the end do with it.
mod admin;

mod reshard;
pub(crate) use reshard::{Layout, MOST_LANES, Places, Placing};

mod end;
pub(crate) use end::Stage;
pub use end::{HandedBack, Report};

// What all of them share.
mod room;
pub(crate) use room::Room;

mod clocks;

mod later;

mod tasks;

mod probe;

mod events;
pub use events::{Event, Events, SourceEvent};

mod reports;

mod watchdog;

mod health;
