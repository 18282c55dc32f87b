//! Consuming a [`Source`](crate::source::Source): messages of a broker, in order per key.
//!
//! [`Dispatcher::consume`](crate::Dispatcher::consume) starts it and returns an [`Intake`], which
//! pauses and stops it and has its [`IntakeStats`]. [`IntakeSettings`] has every setting.

//     Intake ── commands ──► Driver ── receive, settle ──► Source
//        ▲                    │  │
//        └── stats, report ───┘  ├──► Core: what is held, and what is to be done (pure)
//                                ├──► Inlet: into the lanes, or aside before a full one
//                                └──► EnginePort: what has settled, what is taken back
//
// # How it works
//
//     driver (a task, one per source)                     engine
//     ───────────────────────────────                     ──────
//     receive ──► held: slot ─ position ──► inlet ──────► channel ► lanes ► runner ► settle
//        ▲                 ▲                  │ full lane     word: (source, slot)     │
//        │                 │                  ▼                                        ▼
//     settle, confirm ◄────┴───────────────  aside        outbox of the driver ◄── (slot, outcome)
//
// A message of a source carries one word, its `SourceSlot`, in the place where other messages have
// a receipt or a version. So it needs no box and no generic, and a parked message takes 24 bytes
// more than itself, as without a source. `settle` and `hand_back` push the word and the outcome
// into the outbox of the driver. A runner wakes the driver when it flushes its tally, so a driver
// that is behind gets its settlements in batches.
//
// The engine knows what is revoked by slot, and not by generation. So a single message can be
// recalled, and the engine need not know what a generation is. The number of a source is never used
// again, because a message of a driver that is gone must not settle a message of another driver.
//
// **Who decides?**
// `Core`, a state machine without Tokio, clock and lock. Each thing that the source, the engine,
// the handle or the clock tells the driver is one function of it. What is to be done comes out as
// values, and the task of the driver carries them out one by one (`driver/core/mod.rs`). Random
// runs try it against a model of a source (`driver/simulation.rs`).
//
// **Which position is behind a slot?**
// `Held` says it (`driver/core/held.rs`, `keylane_rt::Slots`).
//
// **Who gives room back?**
// Its value, when it is dropped. A message that is in its lane keeps its room, and settles with it
// (`room.rs`).
//
// **What happens when there is next to no room left?**
// The driver asks for a batch of settlements, a sixteenth of `held`, and wakes up by itself after a
// millisecond. The source could hand over no more than has settled, and each turn costs as much as
// several messages (`Core::waits`, `Sources::poll_news`).
//
// **Who goes first when there are settlements?**
// The driver, if nothing else is ready. Tokio polls it on the worker of the runner that woke it,
// and with one hot key the runner would soon find its lane empty (`Runner::proceed`).
//
// **May a revoked message start?**
// No. Slots are marked, all those of a revoke under one lock. The queue and the lanes are swept.
// While a revoke is under way, each start looks at the marks; for this plain messages pay one
// relaxed load. A message that was just put back after a failure is looked at as well, because a
// sweep cannot find it while it is on its way (`engine/{sources/,revoke.rs,starts/admit.rs}`).
//
// **When does an attempt in flight end?**
// At `revoke_within` it fails as `Revoked`, as at a time-out, and its message goes back. It ends at
// once after `Received::Lost`, and when `StartGuard::holds` says that its lease is over. That is
// asked every 20 ms, also while the source is being opened (`engine/run/in_flight.rs`,
// `Core::look`).
//
// **What is acked together?**
// A message settles with the message that stands for it (`Item::settles_with_survivor`).
//
// **What happens to a version in line that goes back?**
// The line is rewound before the source hears of it (`Lane::rewind`).
//
// **What does a full lane do?**
// Its messages wait aside, in order. Other messages of the source go on (`inlet.rs`, `aside.rs`).
//
// **What becomes of messages aside when the number of lanes changes?**
// The inlet alone says where a key waits. It keeps the number of lanes by which messages wait, and
// looks up each new message by that number. When the number is another one, it makes all queues
// anew at one moment (`Inlet::follow_lanes`, `Aside::rehome`).
//
// **What becomes of a batch that does not start?**
// The envelope of a job owns the other messages of its batch and is split by value. So the first
// message cannot settle or go back before the others have an owner (`JobEnvelope` in
// `engine/message/job.rs`).
//
// **What ends a recall?**
// The last recalled message settles. Until then jobs are looked at before they start, because a
// sweep cannot find a message on its way to its lane (`Core::guards_starts`).
//
// **What if a part of a source fails while the rest goes on?**
// The *part* stands in the stats until it has recovered (`driver/core/parts.rs`).
//
// **What does a hot key of a source that reads positions again?**
// The first 64 messages beside a full lane are kept. The others are *deferred*: the slot stays, and
// the message is dropped and read again when those in front have gone in (`aside.rs`).
//
// **How many messages go in when a gate is gone?**
// Half the lane's capacity, in parts. When the first message of a part has settled, so many more go
// in that a lane which keeps up is full and has its gate again (`Inlet::pass_parts`).
//
// **What does a version do that is in line already?**
// It waits outside the lane, and is looked at again every 100 ms. Whether it is a duplicate is
// known when the other one has ended (`engine/decisions/left.rs`).
//
// **What becomes of a message that cannot be placed?**
// It goes back after a second, so that a source with nack does not spin (`Core::refused`).
//
// **What keeps a crash from hiding an attempt?**
// `StartGuard` is called before the start. If it fails, the key waits. An attempt that a revoke or
// a stop drops does not count (`engine/starts/admit.rs`).
//
// # Known, and left as it is
//
// - A counting source may lose a generation and hand a message over again while the old attempt
//   runs. Then it has that attempt in its count already, and the new delivery starts one too high.
//   A revoke has no such gap.
// - Where lanes sequence, early versions can fill `held` while the awaited one is still at the
//   server. The key then stops at the time of its gap, as `on_gap` says.
// - With nack, messages that cannot be placed keep a source busy, as many as `held` allows.
// - `stop` waits for acks that cannot be written: each call of the source may take `stall_after`.
// - A message that is lost with a panic of its key's own `Eq` or `Hash` inside the engine is given
//   back when the dispatcher ends, and not before.

mod settings;
pub use settings::{Guarantee, IntakeSettings};

mod report;
pub use report::{FailedPart, IntakeReport, IntakeState, IntakeStats};

mod intake;
pub use intake::{Intake, IntakeWatch, Stop};

mod figures;
pub(crate) use figures::published;

mod control;

mod holding;

mod waiting;

mod aside;

mod room;

mod inlet;

mod guard;
mod hold;

mod port;

mod driver;

mod start;
