#![doc = include_str!("../README.md")]

mod carrier;
pub use carrier::{Carrier, CarrierMut};

mod creation;
pub use creation::{CreationContext, extract, inject};

mod destination;
pub use destination::{
    Destination, Relation, TracedAnswers, TracedBatches, TracedHandler, TracedSource,
};

pub mod names;

mod origin;
pub use origin::{HasOrigin, Origin, Traced, traced};

mod span;

mod w3c;
