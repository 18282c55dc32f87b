//! A worker: a process that books. It can be killed or paused at any point.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use examples::say;
use keylane::error::BoxError;
use keylane::source::Source;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_sql::error::CommitError;
use keylane_sql::{Committed, SourceSettings};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::sleep;

use crate::Failure;
use crate::book::{book, book_apart};
use crate::place::Place;
use crate::transfer::Claimed;

/// How long the claims of a worker last unless it renews them.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// How many handlers run at once, and how many connections there are for them and for the source.
const HANDLERS: usize = 12;
const CONNECTIONS: u32 = HANDLERS as u32 + 5;

/// Of so many commits the answer to one is thrown away, as a network does: the message is handled once
/// more.
pub(crate) const LOST: u64 = 100;

/// What a worker is told in the first line of its standard input. It works until the input ends, as it
/// does when the demo says so, or dies.
#[derive(Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) place: Place,
    /// Most accounts that it claims at a time.
    pub(crate) keys: usize,
    pub(crate) work: Duration,
    pub(crate) is_apart: bool,
}

/// What a worker says, each in a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// It has begun.
    Ready,
    /// A commit was refused: the account was not ours any more.
    Stale,
    /// A message was handled once more, and nothing was changed.
    Earlier,
    /// The answer to a commit was thrown away.
    Lost,
    /// An attempt has failed for another reason, and is made again.
    Failed,
}

pub(crate) async fn work() -> Result<(), Failure> {
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let job = input.next_line().await?.ok_or("nothing was said to do")?;
    let Job {
        name,
        place,
        keys,
        work,
        is_apart,
    } = serde_json::from_str(&job)?;
    let pool = place.connect(&name, CONNECTIONS).await?;
    let inbox = place.inbox(&pool).await?;

    let settings = SourceSettings::new().name(&name).keys(keys).lease(TTL);
    let source = inbox.source_with(settings).decode(Claimed::decode);
    let commits = Arc::new(AtomicU64::new(0));
    let lanes = Dispatcher::builder(|claimed: &Claimed| claimed.entry.account())
        .concurrency(HANDLERS)
        .retry(Retry::fixed(Duration::from_millis(50)).max_attempts(200))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(move |claimed: Claimed| {
            let (pool, inbox, name) = (pool.clone(), inbox.clone(), name.clone());
            let commits = Arc::clone(&commits);
            async move {
                sleep(work).await;
                let booked = match is_apart {
                    false => book(&inbox, &name, &claimed).await,
                    true => book_apart(&pool, &inbox, &name, &claimed).await,
                };
                match booked {
                    Ok(Committed::Now) => {
                        if (commits.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(LOST) {
                            tell(Word::Lost);
                            return Err("the answer is lost".into());
                        }
                    }
                    Ok(Committed::Earlier) => tell(Word::Earlier),
                    Err(error) => {
                        tell(match error.downcast_ref() {
                            Some(CommitError::Lost) => Word::Stale,
                            _ => Word::Failed,
                        });
                        return Err(error);
                    }
                }
                Ok::<(), BoxError>(())
            }
        })?;
    let intake = lanes.consume(source)?;
    tell(Word::Ready);
    while input.next_line().await?.is_some() {}
    intake.stop().await;
    lanes.drain().await;
    Ok(())
}

fn tell(word: Word) {
    say::line(serde_json::to_string(&word).unwrap_or_default());
}
