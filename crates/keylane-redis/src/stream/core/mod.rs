//! What is decided without a server. Pure.

mod share;
pub(super) use share::{order, quota};

mod cursor;
pub(super) use cursor::{Cursor, Next, Page};

mod owned;
pub(super) use owned::{Owned, Phase};

mod flow;
pub(super) use flow::Flow;

mod resume;
pub(super) use resume::{Known, Resume, Resumes, Seen};
