//! A lane for each sending thread.

use std::num::NonZeroUsize;
// Not through `rt`: no task waits for this number, and it orders nothing.
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the lane of the calling thread, one of `lanes` that are numbered from 0.
///
/// All messages of one thread go to one lane. Threads are numbered when they first call this, and
/// shared out in turn: as many threads as lanes have a lane each.
///
/// So messages that are sent next to each other are handled next to each other, one after the
/// other, and threads that send do not meet in one lane. Use it for messages whose data is warm in
/// the cache of the core that made them, and for senders that are threads, for example each a
/// reader of its own partition.
///
/// # Order
///
/// Order is per sending *thread*, and not per key: messages of one user that two threads send may
/// run at the same time. Nor is it per sending task: a task of a multi-thread runtime may go on in
/// another thread after each await, and what it sends there has another lane. The thread that
/// counts is the one that first polls `send`.
///
/// The handler runs wherever a runner is free: its own lane does not pin it to the thread.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::num::NonZeroUsize;
/// use keylane::routing::local_lane;
/// use keylane::Dispatcher;
///
/// const LANES: NonZeroUsize = NonZeroUsize::new(4).expect("it is not zero");
///
/// let lines = Dispatcher::builder(|_: &String| local_lane(LANES))
///     .spawn(|_: String| async move { Ok::<(), std::io::Error>(()) })?;
/// lines.send("one".to_owned()).await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn local_lane(lanes: NonZeroUsize) -> usize {
    thread_local! {
        static NUMBER: usize = next_number();
    }
    // A thread that is ending may have lost its number.
    NUMBER
        .try_with(|number| *number % lanes)
        .unwrap_or_default()
}

/// Numbers threads from 0.
fn next_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    THREADS.fetch_add(1, Ordering::Relaxed)
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_thread_keeps_its_lane_and_shares_it_only_when_lanes_run_out() {
        let few = NonZeroUsize::new(3).unwrap();
        let lanes: Vec<usize> = (0..8)
            .map(|_| {
                let ask = move || {
                    let number = local_lane(NonZeroUsize::MAX);
                    assert_eq!(local_lane(NonZeroUsize::MAX), number);
                    assert_eq!(local_lane(few), number % few);
                    number
                };
                std::thread::spawn(ask).join().unwrap()
            })
            .collect();
        let distinct: HashSet<usize> = lanes.iter().copied().collect();
        assert_eq!(distinct.len(), lanes.len(), "{lanes:?}");
    }
}
