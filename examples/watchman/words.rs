//! What the processes are told and say: a line of JSON each.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use keylane::error::BoxError;
use keylane::source::RawMessage;
use serde::{Deserialize, Serialize};

/// How often each account is billed.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// How long a leader may be silent before its term ends.
pub(crate) const TTL: Duration = Duration::from_millis(1_200);

/// Where elections and bills are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Store {
    Zookeeper,
    Postgres,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zookeeper => "ZooKeeper",
            Self::Postgres => "PostgreSQL",
        })
    }
}

/// A store and its address. Not `Debug`: an address has a password in it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) store: Store,
    pub(crate) address: String,
}

/// What a process is told in the first line of its standard input.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) place: Place,
    /// The folder of its inbox.
    pub(crate) inbox: PathBuf,
    pub(crate) accounts: u32,
    pub(crate) clock: Clock,
    pub(crate) is_unfenced: bool,
}

/// What it is told later. When the input ends, it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// If it leads, it resigns.
    Resign,
    /// Bill no period after this one.
    Until(u32),
}

/// The time that all processes of a run share, from its beginning on. They are on one machine.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Clock(SystemTime);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(SystemTime::now())
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.elapsed().unwrap_or_default()
    }

    /// The last period that has begun. The first one is 1, and begins after one period.
    pub(crate) fn period(&self) -> u32 {
        let periods = self.now().as_millis() / PERIOD.as_millis();
        u32::try_from(periods).unwrap_or(u32::MAX)
    }
}

/// One account, for one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Bill {
    pub(crate) account: u32,
    pub(crate) period: u32,
}

impl Bill {
    pub(crate) fn decode(raw: &RawMessage) -> Result<Self, BoxError> {
        Ok(serde_json::from_slice(&raw.payload)?)
    }
}

/// What a process says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// It stands for election.
    Ready,
    /// It has taken over, under this token.
    Leads(u64),
    /// It has begun a bill, under this token.
    Begins(u64, Bill),
    /// How that has ended.
    Done(u64, Bill, Written),
    /// The term with this token ends, and why.
    Ends(u64, String),
    /// It has handed over.
    Left(u64),
}

/// What has become of a bill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Written {
    /// It is in the books.
    Billed,
    /// The account was billed for this period before. Nothing was changed.
    Earlier,
    /// The term is over, and the store has refused it.
    Refused,
    /// The store has not answered: it is tried again.
    Failed(String),
}

/// A word, and when it was said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) at: Duration,
    pub(crate) word: Word,
}
