//! Retries of failed messages.

mod policy;
pub use policy::Retry;

mod budget;
pub(crate) use budget::Bucket;
pub use budget::RetryBudget;
