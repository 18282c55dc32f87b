//! When a failed message is tried again.

mod policy;
pub use policy::Retry;

mod budget;
pub(crate) use budget::Bucket;
pub use budget::RetryBudget;
