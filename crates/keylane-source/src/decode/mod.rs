//! A source around a source of raw messages, which decodes them.
//!
//! ```text
//!  inner source ──► arrivals ──► decode ──► handed over ──────────────► settle
//!                      │           │ no                                  │
//!                      ▼           ▼                                     │
//!                 behind a letter of the same key ◄── the key is free ◄──┘
//!                                  │
//!                                  ▼
//!                        sink, or inner source ──► settled as dead-lettered
//! ```
//!
//! Every await of [`Source::receive`](crate::Source::receive) may be its last. Between two of them each message is in
//! exactly one place: the arrivals, the table, or `into`. Letters on their way are in the table,
//! and their futures are not part of the call, and neither are calls of the inner source that it
//! may not see dropped.

mod decoder;
pub(crate) use decoder::Decoder;

mod delivery;

mod guard;

mod inner;

mod letter;
pub use letter::{RawLetter, RawLetterSink};

mod position;
pub use position::DecodedPosition;

mod source;

mod table;
