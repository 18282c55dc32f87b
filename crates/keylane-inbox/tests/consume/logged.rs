//! What the processes that are killed write down: a log of lines, each one `write` to the end of a
//! file, which outlives the process; and a source that writes what it sees.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use keylane::source::{
    Deliveries, Features, Outcome, RawMessage, Received, Settlement, Source, SourceError,
    SourceLetter, StartGuard, StartLater,
};
use keylane_inbox::{InboxPosition, InboxSource};
use keylane_testkit::Id;

use crate::support::id_of;

/// One thing that happened, as it stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The inbox was asked to accept this.
    Asked(Id),
    /// It has.
    Accepted(Id),
    /// An attempt is about to start.
    Start(Id, u32),
    /// It has ended: well, or not.
    End(Id, u32, bool),
    /// Its letter is durable.
    Dead(Id),
    /// It was settled at the source.
    Settled(Id),
    /// It will not come again.
    Confirmed(Id),
    /// The process is gone; written by its parent.
    Crash(u64),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(id) => write!(f, "asked {id}"),
            Self::Accepted(id) => write!(f, "accepted {id}"),
            Self::Start(id, attempt) => write!(f, "start {id} {attempt}"),
            Self::End(id, attempt, true) => write!(f, "ok {id} {attempt}"),
            Self::End(id, attempt, false) => write!(f, "error {id} {attempt}"),
            Self::Dead(id) => write!(f, "dead {id}"),
            Self::Settled(id) => write!(f, "settled {id}"),
            Self::Confirmed(id) => write!(f, "confirmed {id}"),
            // The line before it may be torn.
            Self::Crash(epoch) => write!(f, "\ncrash {epoch}"),
        }
    }
}

impl Line {
    /// `None` for a line that was torn: a whole one ends with a full stop.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_suffix(" .")?.split(' ');
        let what = words.next()?;
        let id = words.next()?.parse().ok()?;
        let mut attempt = || words.next()?.parse().ok();
        Some(match what {
            "asked" => Self::Asked(id),
            "accepted" => Self::Accepted(id),
            "start" => Self::Start(id, attempt()?),
            "ok" => Self::End(id, attempt()?, true),
            "error" => Self::End(id, attempt()?, false),
            "dead" => Self::Dead(id),
            "settled" => Self::Settled(id),
            "confirmed" => Self::Confirmed(id),
            "crash" => Self::Crash(id),
            _ => return None,
        })
    }
}

/// The log of a directory. What is written is in the hands of the operating system at once.
#[derive(Clone)]
pub(crate) struct Log(Arc<File>);

impl Log {
    pub(crate) fn open(directory: &Path) -> Self {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true);
        let file = file.open(directory.join("history.log")).unwrap();
        // The one before may have left half a line.
        (&file).write_all(b"\n").unwrap();
        Self(Arc::new(file))
    }

    pub(crate) fn write(&self, lines: impl IntoIterator<Item = Line>) {
        let mut text = String::new();
        for line in lines {
            writeln!(text, "{line} .").unwrap();
        }
        (&*self.0).write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn read(directory: &Path) -> Vec<Line> {
        let text = std::fs::read_to_string(directory.join("history.log"));
        parse(&text.unwrap_or_default())
    }
}

pub(crate) fn parse(text: &str) -> Vec<Line> {
    text.lines().filter_map(Line::parse).collect()
}

/// The source of an inbox, which writes down what becomes of its messages.
pub(crate) struct Logged {
    inner: InboxSource,
    log: Log,
    ids: Ids,
    unconfirmed: Vec<Id>,
}

/// The messages by their sequences.
type Ids = Arc<Mutex<HashMap<u64, Id>>>;

impl Logged {
    pub(crate) fn new(inner: InboxSource, log: &Log) -> Self {
        Self {
            inner,
            log: log.clone(),
            ids: Ids::default(),
            unconfirmed: Vec::new(),
        }
    }

    fn id(&self, position: &InboxPosition) -> Id {
        self.ids.lock().unwrap()[&position.sequence]
    }
}

impl Source for Logged {
    type Message = RawMessage;
    type Position = InboxPosition;

    fn features(&self) -> Features {
        self.inner.features()
    }

    fn validate(&self) -> Result<(), SourceError> {
        self.inner.validate()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.inner.open().await
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, InboxPosition>,
    ) -> Result<Received<InboxPosition>, SourceError> {
        let received = self.inner.receive(into).await;
        for delivery in into.take() {
            let id = id_of(&delivery.message);
            let sequence = delivery.position.sequence;
            self.ids.lock().unwrap().insert(sequence, id);
            into.push(delivery);
        }
        received
    }

    async fn settle(&mut self, settled: &[Settlement<InboxPosition>]) -> Result<(), SourceError> {
        let acks = settled.iter().filter(|one| one.outcome.is_ack());
        let ids: Vec<Id> = acks.map(|one| self.id(&one.position)).collect();
        self.log.write(ids.iter().copied().map(Line::Settled));
        self.unconfirmed.extend(ids);
        self.inner.settle(settled).await
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.inner.confirm().await?;
        self.log
            .write(self.unconfirmed.drain(..).map(Line::Confirmed));
        Ok(())
    }

    async fn dead_letter(
        &mut self,
        letter: SourceLetter<InboxPosition>,
    ) -> Result<(), SourceError> {
        let id = self.id(&letter.position);
        self.inner.dead_letter(letter).await?;
        self.log.write([Line::Dead(id)]);
        Ok(())
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<InboxPosition>>> {
        Some(Arc::new(LoggedStarts {
            inner: self.inner.start_guard()?,
            log: self.log.clone(),
            ids: Arc::clone(&self.ids),
        }))
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        self.inner.close().await
    }
}

/// Writes that an attempt starts before it is counted: so one that is counted is in the log.
struct LoggedStarts {
    inner: Arc<dyn StartGuard<InboxPosition>>,
    log: Log,
    ids: Ids,
}

impl StartGuard<InboxPosition> for LoggedStarts {
    fn starts(&self, slot: u32, position: &InboxPosition, attempt: u32) -> Result<(), StartLater> {
        let id = self.ids.lock().unwrap()[&position.sequence];
        self.log.write([Line::Start(id, attempt)]);
        self.inner.starts(slot, position, attempt)
    }

    fn settles(&self, slot: u32, position: &InboxPosition, outcome: Outcome) {
        self.inner.settles(slot, position, outcome);
    }
}
