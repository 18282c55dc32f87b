//! What a leader does: it bills every account for every period.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::try_join_all;
use keylane::consume::Intake;
use keylane::error::BoxError;
use keylane::source::Source;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_inbox::Inbox;
use keylane_leader::{Career, End, Stop, Term, consuming};
use tokio::time::{sleep, timeout};

use crate::Failure;
use crate::books::Books;
use crate::words::{Bill, Job, Word, Written};

/// How long it takes to work a bill out.
const WORK: Duration = Duration::from_millis(250);

/// How long a bill may take to be written before its attempt fails. Longer than a term: what is
/// sent before a fault is to arrive after it.
const WRITE_WITHIN: Duration = Duration::from_secs(20);

/// How long it waits before it writes again.
const AGAIN: Duration = Duration::from_millis(100);

/// How often a leader looks whether another period has begun.
const LOOK: Duration = Duration::from_millis(20);

/// What a process has, whether it leads or not.
pub(crate) struct Desk {
    job: Job,
    books: Books,
    inbox: Inbox,
    /// The last period to bill. Relaxed: a leader that reads it late bills one more.
    pub(crate) until: AtomicU32,
    tell: Box<dyn Fn(Word) + Send + Sync>,
}

impl Desk {
    pub(crate) fn new(
        job: Job,
        books: Books,
        inbox: Inbox,
        tell: impl Fn(Word) + Send + Sync + 'static,
    ) -> Self {
        Self {
            job,
            books,
            inbox,
            until: AtomicU32::new(u32::MAX),
            tell: Box::new(tell),
        }
    }

    pub(crate) fn tell(&self, word: Word) {
        (self.tell)(word);
    }

    /// Puts the bills of a period into the inbox. They are on the disk when this returns.
    async fn accept(&self, period: u32, billed: &[u32]) -> Result<(), Failure> {
        let due = (0..self.job.accounts)
            .zip(billed)
            .filter(|(_, billed)| **billed < period);
        let accepted = due.map(|(account, _)| async move {
            let bill = serde_json::to_vec(&Bill { account, period })?;
            self.inbox
                .accept(account.to_be_bytes().to_vec(), bill)
                .await?;
            Ok::<_, Failure>(())
        });
        try_join_all(accepted).await?;
        Ok(())
    }

    /// Works a bill out, and writes it.
    async fn bill(&self, term: &Term, bill: Bill) -> Written {
        let token = term.token().0;
        self.tell(Word::Begins(token, bill));
        sleep(WORK).await;
        let written = timeout(WRITE_WITHIN, self.written(term, bill)).await;
        let no_answer = |_| Written::Failed("the store does not answer".to_owned());
        let written = written.unwrap_or_else(no_answer);
        self.tell(Word::Done(token, bill, written.clone()));
        written
    }

    /// Writes a bill again until the store has answered: without an answer it may be written or
    /// not.
    async fn written(&self, term: &Term, bill: Bill) -> Written {
        loop {
            let (books, leader) = (&self.books, &self.job.name);
            let answer = match self.job.is_unfenced {
                false => books.write(term, leader, bill).await,
                true => books.write_unfenced(term, leader, bill).await,
            };
            match answer {
                Ok(written) => return written,
                Err(_) => sleep(AGAIN).await,
            }
        }
    }
}

/// The career: it consumes the inbox of its process under the term, and puts the bills into it.
pub(crate) struct Billing<C> {
    desk: Arc<Desk>,
    /// What handles the bills that are in the inbox.
    consumer: C,
    /// The last period that was billed before this term, for each account.
    billed: Vec<u32>,
}

impl Billing<()> {
    pub(crate) fn new(desk: &Arc<Desk>) -> Billing<impl Career<Error = String> + use<>> {
        let of_term = Arc::clone(desk);
        Billing {
            desk: Arc::clone(desk),
            consumer: consuming(move |term| std::future::ready(consume(&of_term, &term))),
            billed: Vec::new(),
        }
    }
}

/// Handles what is in the inbox while the term is held: in order for each account.
fn consume(desk: &Arc<Desk>, term: &Term) -> Result<(Lanes, Intake), Failure> {
    let (of_handler, of_term) = (Arc::clone(desk), term.clone());
    let lanes = Dispatcher::builder(|bill: &Bill| bill.account)
        .leased_by(term.lanes())
        .concurrency(desk.job.accounts as usize)
        .retry(Retry::fixed(Duration::from_millis(100)).max_attempts(100))
        .on_exhausted(OnExhausted::Halt)
        .spawn(move |bill: Bill| {
            let (desk, term) = (Arc::clone(&of_handler), of_term.clone());
            async move {
                // In a task of its own, as what is already on its way to another service: it goes
                // on when the handler is dropped because the term is lost. The store must refuse
                // it.
                let written = tokio::spawn(async move { desk.bill(&term, bill).await });
                match written.await? {
                    Written::Billed | Written::Earlier => Ok::<_, BoxError>(()),
                    Written::Refused => Err("the term is over".into()),
                    Written::Failed(error) => Err(error.into()),
                }
            }
        })?;
    let intake = lanes.consume(desk.inbox.source().decode(Bill::decode))?;
    Ok((lanes, intake))
}

type Lanes = Dispatcher<u32, Bill, (), BoxError>;

impl<C: Career<Error = String>> Career for Billing<C> {
    type Error = String;

    /// Finds where the leader before has ended. What that one writes now is refused.
    async fn inaugurate(&mut self, term: &Term) -> Result<(), String> {
        let billed = self.desk.books.billed().await;
        self.billed = billed.map_err(|error| error.to_string())?;
        self.consumer.inaugurate(term).await?;
        self.desk.tell(Word::Leads(term.token().0));
        Ok(())
    }

    async fn execute(&mut self, term: &Term, stop: Stop) -> Result<(), String> {
        tokio::select! {
            ended = self.consumer.execute(term, stop) => ended,
            Err(error) = feed(&self.desk, &self.billed) => Err(error.to_string()),
        }
    }

    /// What is in the inbox is billed before this returns, if the leader leaves in order.
    async fn hand_over(&mut self, term: &Term, why: End) {
        let token = term.token().0;
        self.desk.tell(Word::Ends(token, why.to_string()));
        self.consumer.hand_over(term, why).await;
        self.desk.tell(Word::Left(token));
    }
}

/// Puts the bills of each period into the inbox when it begins, and first those that are missing.
async fn feed(desk: &Desk, billed: &[u32]) -> Result<(), Failure> {
    let mut next = billed.iter().min().map_or(1, |least| least + 1);
    loop {
        let due = desk
            .job
            .clock
            .period()
            .min(desk.until.load(Ordering::Relaxed));
        while next <= due {
            desk.accept(next, billed).await?;
            next += 1;
        }
        sleep(LOOK).await;
    }
}

impl<C> fmt::Debug for Billing<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Billing").finish_non_exhaustive()
    }
}
