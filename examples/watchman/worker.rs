//! A process: a candidate with an inbox of its own. It can be killed or paused at any point.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use examples::say;
use keylane_inbox::Inbox;
use keylane_leader::{Candidate, Elections};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::Failure;
use crate::books::Books;
use crate::career::{Billing, Desk};
use crate::words::{Job, Order, Said, TTL, Word};

const ELECTION: &str = "billing";

/// How long a candidate rests after its term.
const REST: Duration = Duration::from_millis(300);

pub(crate) async fn work() -> Result<(), Failure> {
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let job = input.next_line().await?.ok_or("nothing was said to do")?;
    let job: Job = serde_json::from_str(&job)?;
    let (name, clock) = (job.name.clone(), job.clock);
    let tell = move |word| {
        let said = Said {
            at: clock.now(),
            word,
        };
        say::line(serde_json::to_string(&said).unwrap_or_default());
    };

    let books = Books::open(&job.place).await?;
    let inbox = Inbox::open(&job.inbox).await?;
    let elections = Elections::open(books.elections())?;
    let desk = Arc::new(Desk::new(job, books, inbox.clone(), tell));
    let office = Candidate::builder(&elections, ELECTION)
        .id(name)
        .ttl(TTL)
        .retry_after(REST, 4 * REST)
        .run(Billing::new(&desk))?;
    desk.tell(Word::Ready);

    while let Some(line) = input.next_line().await? {
        match serde_json::from_str(&line)? {
            // It may have lost its term meanwhile, and then there is nothing to resign from.
            Order::Resign => _ = office.resign(),
            Order::Until(period) => desk.until.store(period, Ordering::Relaxed),
        }
    }
    office.close().await;
    elections.close().await;
    inbox.close().await?;
    Ok(())
}
