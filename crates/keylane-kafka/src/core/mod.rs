//! What is decided without a client. Pure.

mod position;
pub use position::KafkaPosition;

mod assignment;
pub(crate) use assignment::{Assigned, Assignment};

mod names;

mod partition;
pub use partition::MetadataFull;
pub(crate) use partition::{Commit, Phase, Start};

mod uncommitted;
pub(crate) use uncommitted::CommitLimits;

mod hazards;
pub(crate) use hazards::{Role, TopicSettings};

mod start;
pub(crate) use start::{Begin, Committed, Log, begin};
pub use start::{OnOvertaken, StartAt};

mod marks;
pub(crate) use marks::Marks;
