//! All communication with the brokers.

mod offset;

mod codes;
pub(crate) use codes::{REFUSALS, is_group_in_use, is_missing_topic, is_name_conflict, is_silence};

mod context;
pub(crate) use context::{Consumer, Found, Known, News, Ownership, Release};

mod session;
pub(crate) use session::{Session, first_answer, is_name_taken};

mod closable;

mod topics;
pub(crate) use topics::TopicIds;

mod starts;
pub(crate) use starts::{Answered, Answers, NO_LEADER, Rules, ask_for_starts, at_first_start};

mod prefetch;
pub(crate) use prefetch::{Fetched, Prefetched, Prefetcher, size};

mod job;
pub(crate) use job::{Job, blocking, job};

mod commit;
pub(crate) use commit::{Answer, ToCommit, commit};

mod silent;
pub(crate) use silent::{Failure, Silent};

mod reader;
pub(crate) use reader::Reader;

mod inspect;
pub(crate) use inspect::topic_settings;

mod progress;
pub(crate) use progress::Progress;

mod letter_log;
pub(crate) use letter_log::{LetterLog, MarkError, Spot};
