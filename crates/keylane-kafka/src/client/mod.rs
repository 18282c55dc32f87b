//! Everything that speaks with the brokers.

mod context;
pub(crate) use context::{Found, News, Ownership, Release, log};

mod session;
pub(crate) use session::{Consumer, Session};

mod tap;

mod prefetch;
pub(crate) use prefetch::{Fetched, Prefetched, Prefetcher};

mod job;
pub(crate) use job::{Job, blocking, job};

mod commit;
pub(crate) use commit::{Answer, ToCommit, commit};

mod reader;
pub(crate) use reader::Reader;

mod progress;
pub(crate) use progress::Progress;
