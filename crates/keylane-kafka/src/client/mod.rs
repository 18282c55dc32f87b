//! Everything that speaks with the brokers.

mod context;
pub(crate) use context::{Found, News, Release};

mod session;
pub(crate) use session::{Consumer, Queue, Session};

mod commit;
pub(crate) use commit::{Answer, commit};

mod reader;
pub(crate) use reader::Reader;
