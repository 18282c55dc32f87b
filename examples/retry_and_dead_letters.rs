//! A payment that fails is tried again, and at last given up on, without losing its place.
//!
//! ```text
//! cargo run --example retry_and_dead_letters
//! RUST_LOG=keylane=info cargo run --example retry_and_dead_letters   # with a line for each attempt, on stderr
//! ```
//!
//! Three accounts with two payments each. Look at who waits for what:
//!
//! - Ada's bank answers at the third attempt. Her second payment waits for that: a message that is
//!   tried again stays at the head of its lane.
//! - Bob's first payment never succeeds. After the last attempt it becomes a dead letter, and when
//!   that is stored, at the second try here, his second payment starts.
//! - Cid has no trouble, and does not wait.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keylane::error::BoxError;
use keylane::{Context, DeadLetter, DeadLetterSink, Dispatcher, OnExhausted, Retry};
use tokio::time::Instant;

#[derive(Debug, Clone)]
struct Payment {
    account: &'static str,
    number: u32,
    /// The first attempt that the bank answers.
    answered_at: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("the bank does not answer")]
struct NoAnswer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    examples::log_to_stderr("off");
    let clock = Clock(Instant::now());
    let letters = Letters {
        clock,
        tries: AtomicU32::new(0),
    };
    let payments = Dispatcher::builder(|payment: &Payment| payment.account)
        .retry(Retry::exponential(Duration::from_millis(100)).max_attempts(4))
        .on_exhausted(OnExhausted::dead_letter(letters))
        .spawn(
            move |context: Context<&'static str>, payment: Payment| async move {
                let attempt = context.attempt();
                tokio::time::sleep(Duration::from_millis(20)).await;
                let answer = if attempt < payment.answered_at {
                    Err(NoAnswer)
                } else {
                    Ok(())
                };
                let said = match &answer {
                    Ok(()) => "paid".to_owned(),
                    Err(error) => error.to_string(),
                };
                clock.say(&payment, &format!("attempt {attempt}: {said}"));
                answer
            },
        )?;

    for number in [1, 2] {
        for (account, answered_at) in [("ada", 3), ("bob", u32::MAX), ("cid", 1)] {
            let payment = Payment {
                account,
                number,
                answered_at: if number == 1 { answered_at } else { 1 },
            };
            payments.send(payment).await?;
        }
    }
    println!("{}", payments.drain().await);
    Ok(())
}

/// Where dead letters go. Here to the terminal; yours will write them where they survive a crash.
struct Letters {
    clock: Clock,
    tries: AtomicU32,
}

#[keylane::async_trait]
impl DeadLetterSink<&'static str, Payment, NoAnswer> for Letters {
    async fn accept(
        &self,
        letter: &DeadLetter<&'static str, Payment, NoAnswer>,
    ) -> Result<(), BoxError> {
        let DeadLetter {
            message: payment,
            attempts,
            failure,
            ..
        } = letter;
        // A sink may fail too. The letter is offered again, and only its key waits.
        if self.tries.fetch_add(1, Ordering::Relaxed) == 0 {
            self.clock.say(payment, "the dead letter cannot be stored");
            return Err("the disk is full".into());
        }
        let text = format!("dead letter stored, after {attempts} attempts: {failure}");
        self.clock.say(payment, &text);
        Ok(())
    }
}

/// Says what happens, and when.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn say(self, payment: &Payment, what: &str) {
        let ms = self.0.elapsed().as_millis();
        let Payment {
            account, number, ..
        } = payment;
        println!("{ms:>5} ms  {account}'s payment {number}: {what}");
    }
}
