//! Reads an inbox for a dispatcher.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use keylane_source::{
    Deliveries, Delivery, Describer, Features, Outcome, RawMessage, Received, Settlement, Source,
    SourceError, SourceLetter, StartGuard,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::config::SourceSettings;
use super::core::{PageEntry, Pages};
use super::guard::MarkGuard;
use super::position::InboxPosition;
use super::settle::DoneWrites;
use crate::attempts::Marks;
use crate::error::StoreError;
use crate::inbox::Inbox;
use crate::message::StoredMessage;
use crate::store::{InboxStore, Redriven, Settled, Tail};

/// The most messages, and bytes, that are read at once.
const PAGE: usize = 1_024;
const PAGE_BYTES: usize = 1 << 20;

/// The openings of all sources of this process.
static OPENINGS: AtomicU64 = AtomicU64::new(0);

/// Messages that were read and not handed over yet.
enum Page {
    /// From the cursor on. If it is empty, there are no messages up to this sequence.
    On(VecDeque<StoredMessage>, u64),
    /// Messages whose turn has come again. `None`: it does not wait any more.
    Again(VecDeque<(u64, Bytes, Option<StoredMessage>)>),
}

type Reading = JoinHandle<Result<Page, StoreError>>;

/// An inbox as the source of a dispatcher: see [`Inbox::source`].
pub struct InboxSource {
    store: Arc<dyn InboxStore>,
    marks: Option<Arc<Marks>>,
    settings: SourceSettings,
    pages: Pages,
    /// See [`InboxPosition`].
    opening: u64,
    /// Messages that are handed over and have a letter in the store.
    kept: HashSet<u64>,
    tail: watch::Receiver<Tail>,
    redrives: u64,
    /// Earlier attempts, by sequence, of messages that are not handed over.
    attempts: HashMap<u64, u32>,
    done: DoneWrites,
    reading: Option<Reading>,
    /// Letters have come back since the read began: its result may be out of date.
    is_outdated: bool,
    page: Option<Page>,
    /// A page from the cursor on that may not be handed over now, while others are read again.
    set_aside: Option<Page>,
    /// Letters that have come back and were not looked at yet.
    redriven: Vec<u64>,
    /// Whether an inbox has a source, and whether it is this one.
    taken: Arc<AtomicBool>,
    is_reader: bool,
}

impl Inbox {
    /// Returns the inbox as the source of a dispatcher.
    ///
    /// Messages of a key are handed over in the order in which they were accepted. Only a window of
    /// each key is in memory, however many messages are stored: see [`SourceSettings`]. An attempt
    /// is counted before its handler starts, so a message that kills the process becomes a dead
    /// letter after its attempts. With `OnExhausted::AtSource` the inbox keeps the dead letters,
    /// see [`letters`](Self::letters), and a redriven letter goes ahead of the waiting messages of
    /// its key.
    ///
    /// An inbox has one source at a time: while one is consumed, another one is refused.
    ///
    /// A handler can recognise a repeat by the [id](crate::NewMessage::id) of the message in
    /// [`RawMessage::id`], if the message was accepted with one.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylane::source::{RawMessage, Source};
    /// use keylane::{Dispatcher, OnExhausted};
    /// use keylane_inbox::Inbox;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let directory = directory.path().join("orders");
    /// #[derive(Clone)]
    /// struct Order { user: String, text: String }
    ///
    /// let inbox = Inbox::open(directory).await?;
    /// let orders = Dispatcher::builder(|order: &Order| order.user.clone())
    ///     .on_exhausted(OnExhausted::AtSource)
    ///     .spawn(|order: Order| async move {
    ///         println!("{}: {}", order.user, order.text);
    ///         Ok::<(), std::io::Error>(())
    ///     })?;
    /// let intake = orders.consume(inbox.source().decode(|raw: &RawMessage| {
    ///     let user = String::from_utf8(raw.key.clone().unwrap_or_default().to_vec())?;
    ///     let text = String::from_utf8(raw.payload.to_vec())?;
    ///     Ok(Order { user, text })
    /// }))?;
    ///
    /// inbox.accept("user-7", "the first order").await?; // from here on it is not lost
    ///
    /// # while inbox.stats().await?.waiting > 0 { tokio::task::yield_now().await }
    /// println!("{}", intake.stop().await);
    /// inbox.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn source(&self) -> InboxSource {
        self.source_with(SourceSettings::new())
    }

    /// Returns the same source with other limits.
    pub fn source_with(&self, settings: SourceSettings) -> InboxSource {
        let taken = Arc::clone(self.taken());
        let is_reader = !taken.swap(true, Ordering::SeqCst);
        InboxSource {
            store: Arc::clone(self.store()),
            marks: self.marks().cloned(),
            settings,
            pages: Pages::new(settings),
            opening: 0,
            kept: HashSet::new(),
            tail: self.store().tail(),
            redrives: 0,
            attempts: HashMap::new(),
            done: DoneWrites::default(),
            reading: None,
            is_outdated: false,
            page: None,
            set_aside: None,
            redriven: Vec::new(),
            taken,
            is_reader,
        }
    }
}

impl Source for InboxSource {
    type Message = RawMessage;
    type Position = InboxPosition;

    fn name(&self) -> String {
        match self.store.name() {
            "" => "inbox".to_owned(),
            name => format!("inbox {name}"),
        }
    }

    fn describer(&self) -> Describer<InboxPosition> {
        Describer::new(InboxPosition::place)
    }

    fn features(&self) -> Features {
        let features = Features::new().nack().survives_restart().dead_letters();
        match self.marks {
            Some(_) => features.counts_attempts(),
            None => features,
        }
    }

    fn validate(&self) -> Result<(), SourceError> {
        if !self.store.is_scanned_in_order() {
            return Err(SourceError::failed(
                "this store does not commit in order: consume the source that comes with it",
            ));
        }
        match self.is_reader {
            true => Ok(()),
            false => Err(SourceError::failed(
                "the inbox is already consumed: stop that intake first",
            )),
        }
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        // Open without its inbox, the source would fail again at once.
        if let Err(StoreError::Closed) = self.store.read(&[]).await {
            return Err(closed_too_early());
        }
        // Messages that are done must not be read again.
        self.done.wait().await.map_err(failed)?;
        self.opening = OPENINGS.fetch_add(1, Ordering::Relaxed) + 1;
        self.kept.clear();
        self.redrives = self.tail.borrow_and_update().redrives;
        let _ = self.store.take_redriven();
        self.pages = Pages::new(self.settings);
        (self.reading, self.page, self.set_aside) = (None, None, None);
        self.is_outdated = false;
        self.redriven.clear();
        if let Some(marks) = &self.marks {
            // Messages that still run from an earlier opening are handed over again as well.
            self.attempts.extend(marks.under_way());
            self.attempts.extend(marks.recover());
        }
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, InboxPosition>,
    ) -> Result<Received<InboxPosition>, SourceError> {
        let until = into.until();
        loop {
            if let Some(recalled) = self.take_redriven().await? {
                return Ok(Received::Recalled(recalled));
            }
            self.hand_over(into);
            if !into.is_empty() {
                return Ok(Received::Messages);
            }
            if into.room() > 0 {
                self.begin_to_read();
            }
            tokio::select! {
                biased;
                // By reference: a dropped `receive` does not stop the read.
                page = read(&mut self.reading) => {
                    self.reading = None;
                    let page = page.map_err(failed)?;
                    if std::mem::take(&mut self.is_outdated) {
                        self.put_back(page);
                        continue;
                    }
                    if let Page::On(messages, end) = &page
                        && messages.is_empty()
                    {
                        self.pages.advance(end + 1);
                    }
                    self.page = Some(page);
                }
                error = self.done.displaced() => return Err(failed(error)),
                changed = self.tail.changed() => {
                    changed.map_err(|_| closed_too_early())?;
                }
                () = tokio::time::sleep_until(until) => return Ok(Received::Idle),
            }
        }
    }

    async fn settle(&mut self, settled: &[Settlement<InboxPosition>]) -> Result<(), SourceError> {
        let mut done = Vec::with_capacity(settled.len());
        let mut forgotten = Vec::new();
        for Settlement {
            position, outcome, ..
        } in settled
        {
            if position.opening != self.opening {
                continue;
            }
            let comes_back = !outcome.is_ack();
            let sequence = position.sequence;
            self.pages.settle(sequence, &position.key, comes_back);
            match outcome {
                // Its letter is in its place, or waits again already.
                Outcome::DeadLettered if self.kept.remove(&sequence) => {}
                Outcome::Returned { attempts, .. } => {
                    if *attempts > 0 {
                        self.attempts.insert(sequence, *attempts);
                    }
                    continue;
                }
                _ => done.push(Settled::Done(sequence)),
            }
            if self.attempts.remove(&sequence).is_some() {
                forgotten.push(sequence);
            }
        }
        if let Some(marks) = &self.marks {
            marks.forget(&forgotten).map_err(SourceError::failed)?;
            if let Err(error) = marks.clear_stale() {
                let source = self.name();
                tracing::warn!(target: "keylane", %source, %error, "start marks could not be updated");
            }
        }
        if done.is_empty() {
            return Ok(());
        }
        let written = self.done.write(&self.store, done).await;
        written.map_err(failed)
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.done.wait().await.map_err(failed)
    }

    async fn dead_letter(
        &mut self,
        letter: SourceLetter<InboxPosition>,
    ) -> Result<(), SourceError> {
        let sequence = letter.position.sequence;
        let letter = Settled::DeadLetter {
            sequence,
            attempts: letter.attempts,
            kind: letter.cause.into(),
            error: letter.why,
        };
        let kept = self.store.settle(vec![letter]).await;
        kept.map_err(failed)?;
        self.kept.insert(sequence);
        Ok(())
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<InboxPosition>>> {
        let marks = Arc::clone(self.marks.as_ref()?);
        let name = self.name();
        Some(Arc::new(MarkGuard { marks, name }))
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        let confirmed = self.confirm().await;
        // At once, and not on drop: a caller that has awaited the end may consume again.
        self.let_go();
        confirmed
    }
}

impl InboxSource {
    /// Lets the inbox have another source.
    fn let_go(&mut self) {
        if std::mem::take(&mut self.is_reader) {
            self.taken.store(false, Ordering::SeqCst);
        }
    }

    /// Returns the highest sequence that can be read.
    fn end(&self) -> u64 {
        self.tail.borrow().sequence
    }

    /// Hands over the messages that were read, while there is room.
    fn hand_over(&mut self, into: &mut Deliveries<RawMessage, InboxPosition>) {
        while into.room() > 0 {
            match &mut self.page {
                None if self.reading.is_none() && self.pages.reads_on() => {
                    self.page = self.set_aside.take();
                    if self.page.is_none() {
                        return;
                    }
                }
                None => return,
                Some(Page::On(messages, _)) => {
                    if !self.pages.reads_on() {
                        return;
                    }
                    let Some(message) = messages.pop_front() else {
                        self.page = None;
                        return;
                    };
                    let (sequence, bytes) = (message.sequence, message.payload.len());
                    let turn = self
                        .pages
                        .meet(sequence, &message.key, message.version, bytes);
                    if turn == PageEntry::Over {
                        let delivery = self.delivery(message);
                        into.push(delivery);
                    }
                }
                Some(Page::Again(messages)) => match messages.pop_front() {
                    None => {
                        self.page = None;
                        return;
                    }
                    Some((sequence, key, None)) => self.pages.settle(sequence, &key, false),
                    Some((sequence, key, Some(message))) => {
                        let bytes = message.payload.len();
                        self.pages.hand_over(sequence, &key, message.version, bytes);
                        let delivery = self.delivery(message);
                        into.push(delivery);
                    }
                },
            }
        }
    }

    /// Begins to read the next page, unless one is here or there is nothing to read.
    fn begin_to_read(&mut self) {
        if self.reading.is_some() || !self.pages.has_room() {
            return;
        }
        // The page waits for messages to settle, and ready messages must not wait for it.
        if matches!(self.page, Some(Page::On(..))) && self.pages.has_ready() {
            self.set_aside = self.page.take();
        }
        if self.page.is_some() {
            return;
        }
        let store = Arc::clone(&self.store);
        if self.pages.has_ready() {
            let taken = self.pages.take_ready(PAGE);
            self.reading = Some(tokio::spawn(async move {
                let sequences: Vec<u64> = taken.iter().map(|(sequence, _)| *sequence).collect();
                let messages = store.read(&sequences).await?;
                let again = taken.into_iter().zip(messages);
                let again = again.map(|((sequence, key), message)| (sequence, key, message));
                Ok(Page::Again(again.collect()))
            }));
            return;
        }
        let (from, end) = (self.pages.cursor(), self.end());
        if !self.pages.reads_on() || from > end {
            return;
        }
        self.reading = Some(tokio::spawn(async move {
            let messages = store.scan(from, PAGE, PAGE_BYTES).await?;
            Ok(Page::On(messages.into(), end))
        }));
    }

    fn position(&self, sequence: u64, key: Bytes, id: Option<Bytes>) -> InboxPosition {
        InboxPosition {
            sequence,
            key,
            id,
            opening: self.opening,
        }
    }

    fn delivery(&mut self, message: StoredMessage) -> Delivery<RawMessage, InboxPosition> {
        let StoredMessage {
            sequence,
            accepted_at,
            key,
            payload,
            id,
            version,
            headers,
            ..
        } = message;
        let attempts = self.attempts.remove(&sequence).unwrap_or(0);
        let mut raw = RawMessage::new(payload).key(key.clone());
        raw.headers = headers
            .into_iter()
            .map(|header| (header.name, Some(header.value)))
            .collect();
        raw.attempt = attempts.saturating_add(1);
        raw.id = id.map(Bytes::from);
        raw.version = version;
        raw.enqueued_at = Some(accepted_at);
        let position = self.position(sequence, key, raw.id.clone());
        Delivery::raw(raw, position).attempts(attempts)
    }

    /// Takes letters that wait again. Returns the messages that are handed over behind them, which
    /// must come back first.
    async fn take_redriven(&mut self) -> Result<Option<Vec<InboxPosition>>, SourceError> {
        let redrives = self.tail.borrow_and_update().redrives;
        if redrives != self.redrives {
            match self.store.take_redriven() {
                Redriven::Sequences(sequences) => self.redriven.extend(sequences),
                _ => {
                    return Err(SourceError::failed(
                        "many letters were redriven: reading all",
                    ));
                }
            }
            self.redriven.sort_unstable();
            self.redriven.dedup();
            self.redrives = redrives;
        }
        if self.redriven.is_empty() {
            return Ok(None);
        }
        // If the future is dropped here, the next call looks at them.
        let messages = self.store.read(&self.redriven).await;
        let messages = messages.map_err(failed)?;
        self.redriven.clear();
        // Messages that were read earlier go behind them, and are read again.
        self.is_outdated = self.reading.is_some();
        for page in [self.page.take(), self.set_aside.take()]
            .into_iter()
            .flatten()
        {
            self.put_back(page);
        }
        let mut recalled = Vec::new();
        for message in messages.into_iter().flatten() {
            let later = self
                .pages
                .wait_again(message.sequence, &message.key, message.version);
            let key = Bytes::copy_from_slice(&message.key);
            let later = later.into_iter();
            recalled.extend(later.map(|sequence| self.position(sequence, key.clone(), None)));
        }
        Ok(Some(recalled).filter(|recalled| !recalled.is_empty()))
    }

    /// Drops a page that was not handed over. Its messages are read again in their turn.
    fn put_back(&mut self, page: Page) {
        let Page::Again(messages) = page else {
            // The cursor is not past it.
            return;
        };
        for (sequence, key, message) in messages {
            if let Some(message) = &message {
                let bytes = message.payload.len();
                self.pages.hand_over(sequence, &key, message.version, bytes);
            }
            self.pages.settle(sequence, &key, message.is_some());
        }
    }
}

/// Returns the error of a source whose store has failed.
fn failed(error: StoreError) -> SourceError {
    match error {
        StoreError::Closed => closed_too_early(),
        error => SourceError::failed(error),
    }
}

fn closed_too_early() -> SourceError {
    SourceError::failed(
        "the inbox was closed before its intake had ended: stop the intake first, and then close \
         the inbox",
    )
}

/// Waits for the page of a read in progress.
async fn read(reading: &mut Option<Reading>) -> Result<Page, StoreError> {
    match reading {
        // This task ends early only with its runtime.
        Some(reading) => reading.await.unwrap_or(Err(StoreError::Closed)),
        None => std::future::pending().await,
    }
}

impl Drop for InboxSource {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl std::fmt::Debug for InboxSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InboxSource").finish_non_exhaustive()
    }
}
