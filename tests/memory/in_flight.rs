//! What a message takes while its handler waits, beside a bare task that waits for the same.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use keylane::Dispatcher;
use tokio::sync::Notify;

use crate::support::{Counting, one_thread};

const HANDLERS: u64 = 100_000;

/// 24 bytes, as the message of `versus-memory`.
struct Message {
    key: u64,
    _body: [u64; 2],
}

/// Where the handlers of the one test that counts now wait, and how many do.
static OPENED: Notify = Notify::const_new();
static WAITING: AtomicU64 = AtomicU64::new(0);

async fn wait() {
    let opened = OPENED.notified();
    WAITING.fetch_add(1, Ordering::Relaxed);
    opened.await;
    WAITING.fetch_sub(1, Ordering::Relaxed);
}

/// Until so many wait.
async fn waiting(count: u64) {
    while WAITING.load(Ordering::Relaxed) < count {
        tokio::task::yield_now().await;
    }
}

/// A tiny handler.
async fn tiny(_: Message) {
    wait().await;
}

/// A handler with 1 KiB in its hands.
async fn wide(message: Message) {
    let buffer = [message.key as u8; 1024];
    wait().await;
    std::hint::black_box(&buffer);
}

fn messages() -> impl Iterator<Item = Message> {
    (0..HANDLERS).map(|key| Message {
        key,
        _body: [key; 2],
    })
}

/// Bytes of each of the tasks that wait.
fn task<F>(counting: &Counting, work: impl Fn(Message) -> F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = one_thread();
    let before = counting.bytes();
    let bytes = runtime.block_on(async {
        messages().for_each(|message| drop(tokio::spawn(work(message))));
        waiting(HANDLERS).await;
        let bytes = counting.bytes() - before;
        OPENED.notify_waiters();
        while runtime.metrics().num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
        bytes
    });
    bytes as f64 / HANDLERS as f64
}

/// Bytes of each of the messages in flight, with everything that the dispatcher has for them.
fn in_flight<F>(counting: &Counting, work: impl Fn(Message) -> F + Send + Sync + 'static) -> f64
where
    F: Future<Output = Result<(), Infallible>> + Send + 'static,
{
    let runtime = one_thread();
    let before = counting.bytes();
    let bytes = runtime.block_on(async {
        let room = (HANDLERS + HANDLERS / 8) as usize;
        let dispatcher = Dispatcher::builder(|message: &Message| message.key)
            .concurrency(room)
            .capacity(room)
            .spawn(work)
            .unwrap();
        for message in messages() {
            dispatcher.send(message).await.unwrap();
        }
        waiting(HANDLERS).await;
        let bytes = counting.bytes() - before;
        OPENED.notify_waiters();
        assert_eq!(dispatcher.drain().await.done, HANDLERS);
        bytes
    });
    bytes as f64 / HANDLERS as f64
}

/// The handlers, as ones that succeed.
async fn tiny_handler(message: Message) -> Result<(), Infallible> {
    tiny(message).await;
    Ok(())
}

async fn wide_handler(message: Message) -> Result<(), Infallible> {
    wide(message).await;
    Ok(())
}

#[test]
fn a_tiny_handler() {
    let counting = Counting::begin();
    let (bare, bytes) = (task(&counting, tiny), in_flight(&counting, tiny_handler));
    println!("{bytes} bytes in flight, {bare} as a bare task");
    assert!(bytes <= 512.0, "{bytes} bytes");
}

#[test]
fn a_handler_of_one_kilobyte() {
    let counting = Counting::begin();
    let (bare, bytes) = (task(&counting, wide), in_flight(&counting, wide_handler));
    println!("{bytes} bytes in flight, {bare} as a bare task");
    assert!(bytes <= 1.3 * bare, "{bytes} bytes, {bare} as a bare task");
}
