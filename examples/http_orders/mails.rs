//! What is done after the answer: the mails that confirm orders, by a dispatcher.

use std::time::Duration;

use keylane::error::BuildError;
use keylane::{Context, Dispatcher, Overflow, Retry};
use tokio::time::sleep;

/// A mail that confirms an order.
#[derive(Clone, Debug)]
pub(crate) struct Mail {
    pub(crate) user: String,
    pub(crate) number: u64,
}

/// The mail server has no time.
#[derive(Debug, thiserror::Error)]
#[error("the mail server is busy")]
pub(crate) struct Busy;

pub(crate) type Mails = Dispatcher<String, Mail, (), Busy>;

/// Mails of one user in the order of the orders, also when one has to be sent again.
pub(crate) fn mails() -> Result<Mails, BuildError> {
    Dispatcher::builder(|mail: &Mail| mail.user.clone())
        .name("mails")
        .concurrency(16)
        .capacity(10_000)
        .lane_capacity(100, Overflow::Reject)
        .attempt_timeout(Duration::from_secs(2))
        .retry(Retry::exponential(Duration::from_millis(20)).max_attempts(5))
        .spawn(send)
}

/// Stands for a mail server that is busy now and then.
async fn send(attempt: Context<String>, mail: Mail) -> Result<(), Busy> {
    sleep(Duration::from_millis(5)).await;
    if mail.number.is_multiple_of(4) && attempt.attempt() == 1 {
        return Err(Busy);
    }
    Ok(())
}
