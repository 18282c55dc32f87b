//! Your own workers pull messages from a queue, with leases.
//!
//! ```text
//! cargo run --example pull_queue
//! ```
//!
//! Three workers pull from one queue. Two messages of alice and two of bob wait in it, and one each
//! of carol and dave.
//!
//! 1. The *crasher* leases a message and panics. Its lease is dropped, and the message is ready
//!    again at once.
//! 2. The *sleeper* keeps a message longer than its lease lasts. The message goes to another
//!    worker, and the sleeper's `complete` is refused.
//! 3. The *steady* worker does the rest, in order for each user, and extends a lease that is too
//!    short for its work.

use std::time::Duration;

use keylane_queue::{Lease, Queue, Redelivery};
use tokio::time::{Instant, sleep};

type Error = Box<dyn std::error::Error>;

/// A task for a user.
struct Job {
    user: &'static str,
    task: &'static str,
}

type Jobs = Queue<&'static str, Job>;

const LEASE: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<(), Error> {
    examples::log_to_stderr("warn");
    let queue = Queue::builder(|job: &Job| job.user)
        .capacity(100)
        .lease_time(LEASE)
        .spawn()?;
    for (user, task) in [
        ("alice", "first"),
        ("bob", "first"),
        ("alice", "second"),
        ("bob", "second"),
        ("carol", "flaky"),
        ("dave", "long"),
    ] {
        queue.enqueue(Job { user, task }).await?;
    }
    println!("{} messages, leases of {LEASE:?}\n", queue.len());

    let clock = Clock(Instant::now());
    // The panic of the crasher is expected: do not print its backtrace.
    std::panic::set_hook(Box::new(|_| {}));
    let crasher = tokio::spawn(crasher(queue.clone(), clock));
    let crashed = crasher.await.is_err();
    clock.says("crasher", format_args!("has crashed: {crashed}"));

    let sleeper = tokio::spawn(sleeper(queue.clone(), clock));
    // The sleeper has its message before the steady one takes the others.
    tokio::task::yield_now().await;
    while queue.leased() == 0 {
        tokio::task::yield_now().await;
    }
    let steady = tokio::spawn(steady(queue.clone(), clock));

    let report = queue.drain().await;
    steady.await?;
    sleeper.await?;
    println!("\n{report}");
    Ok(())
}

/// Leases one message, and panics with it.
async fn crasher(queue: Jobs, clock: Clock) {
    if let Some(job) = queue.dequeue().await {
        clock.leased("crasher", &job);
        panic!("out of order");
    }
}

/// Leases one message, and completes it too late.
async fn sleeper(queue: Jobs, clock: Clock) {
    if let Some(job) = queue.dequeue().await {
        clock.leased("sleeper", &job);
        sleep(2 * LEASE).await;
        let what = format!("{}/{}", job.user, job.task);
        match job.complete() {
            Ok(()) => clock.says("sleeper", format_args!("completes {what}")),
            Err(error) => clock.says(
                "sleeper",
                format_args!("completes {what}: refused, {error}"),
            ),
        }
    }
}

/// Works until the queue is closed and empty.
async fn steady(queue: Jobs, clock: Clock) {
    while let Some(job) = queue.dequeue().await {
        clock.leased("steady", &job);
        let what = format!("{}/{}", job.user, job.task);
        let (did, ended) = match (job.task, job.attempt()) {
            ("flaky", 1) => (
                "fails, again in 50 ms:",
                job.fail(Redelivery::After(LEASE / 4)),
            ),
            ("long", _) => {
                let extended = job.extend(2 * LEASE);
                clock.says("steady", format_args!("extends {what}: {extended:?}"));
                sleep(LEASE * 3 / 2).await;
                ("completes", job.complete())
            }
            _ => {
                sleep(LEASE / 20).await;
                ("completes", job.complete())
            }
        };
        match ended {
            Ok(()) => clock.says("steady", format_args!("{did} {what}")),
            Err(error) => clock.says("steady", format_args!("{did} {what}: refused, {error}")),
        }
    }
}

/// Prints what each worker does, and when.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn leased(self, who: &str, job: &Lease<&'static str, Job>) {
        let (user, task, attempt, token) = (job.user, job.task, job.attempt(), job.token());
        self.says(
            who,
            format_args!("leases {user}/{task} (attempt {attempt}, token {token})"),
        );
    }

    fn says(self, who: &str, what: std::fmt::Arguments<'_>) {
        println!("{:>4} ms  {who:<8} {what}", self.0.elapsed().as_millis());
    }
}
