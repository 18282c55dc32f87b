#![doc = include_str!("../README.md")]

// # How it works
//
// `core/` decides, and knows no client: `core/partition.rs` says what of one partition is open and
// what is to be committed, and `core/assignment.rs` has the partitions that are ours, each in its
// generation. `source/` is the task of the driver, and `link/` speaks with the brokers.
//
// The crate knows the metadata of commits in the format of Parallel Consumer (`metadata/`), and
// `keylane_source::frontier`.
//
// # Reading
//
// Each partition has a queue of its own in the client, which is not the queue of the group. So a
// partition is paused by not looking at it.
//
// `client/prefetch.rs` is a thread that takes records out of these queues and makes messages of
// them, up to 1,024 of a partition, while the driver hands over those before. To take a record out
// of the client costs as much as to hand it over and handle it. Tasks that wake each other run on
// one worker of Tokio, so without the thread the second core had nothing to do. With it there are
// 1.3 to 1.6 times as many records a second where records wait.
//
// All queues of a partition are one queue in the client. So one that is read beyond its assignment
// takes the records of the next one. It is shut (`client/closable.rs`) before the partition goes.
//
// # Rebalances and commits
//
// Another thread hears from the group. A rebalance is a call in that thread, which returns when the
// source has let go of the partition. The other partitions go on meanwhile. Commits, and everything
// else that waits for a broker, run in threads of their own. They do not run in the threads of the
// runtime, whose end would wait for them.
//
// A commit holds a lock that the call of a rebalance takes before it returns, and leaves out the
// partitions that are lost. The client commits in the name of the member that it is when it gets to
// it, and the broker believes a member that has joined again about partitions that others have.
//
// # A topic that is made anew under its name
//
// Only the client's log shows such a topic (`client/topics.rs`): the client shows the ids of topics
// nowhere else. It would go on at its old position, or not at all if the old topic had later leader
// epochs. So the source is opened again, with another client, and the last commits of the old topic
// are not believed of the new one (`source/anew.rs`). Records of the new log that are read before
// the thread that hears from the group hears that line are handled twice.
//
// # Sending and dead letters
//
// `producer/` sends records, and knows nothing of the source. Its client refuses to go on after a
// record that has failed (`enable.gapless.guarantee`), so that no later record of the key is
// written ahead of it. Then another client replaces it. A batch of a spool whose time runs out
// stays on its way. The next call asks for it and does not send it again.
//
// `letters/` is dead letters in a topic. It writes them with the producer. `Redrive`, which sends
// all of them back, is a source, a dispatcher and a producer. `KafkaLetters`, which sends single
// ones back, joins no group (`link/letter_log.rs`). It commits what is done in the name of the
// group: `core/marks.rs` decides what that is, and it goes into the metadata of the commit.

mod source;
pub use source::KafkaSource;

mod config;
pub use config::KafkaSourceBuilder;

mod producer;
#[cfg(feature = "spool")]
pub use producer::SpoolTopic;
pub use producer::{Producer, ProducerBuilder, SendError, Sent};

mod letters;
pub use letters::{
    DeadLetterTopic, KafkaLetter, KafkaLetters, KafkaLettersError, LetterId, NoLetterId, Redrive,
    RedriveError, RedriveReport,
};

mod control;
pub use control::{Control, Overtaken, PartitionStatus};
pub use keylane_connector::tls::TlsFailure;
pub use keylane_connector::{ConfigError, PartFailure};

mod record;
pub use record::{Keyless, Place, Record};

mod core;
pub use core::{KafkaPosition, MetadataFull, OnOvertaken, StartAt};

pub mod metadata;

mod metrics;
pub use metrics::published_metrics;

mod link;

mod log;

mod refusal;

mod explain;

#[cfg(feature = "tls")]
mod certificates;

mod error;
pub use error::KafkaSourceError;
