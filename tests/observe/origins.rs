//! What the log says of a message that a source has handed over: its source, its position, its id.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keylane::error::BoxError;
use keylane::source::{Features, RawLetter, RawLetterSink, RawMessage, Source as _};
use keylane::{Context, DeadLetter, DeadLetterSink, Dispatcher, OnExhausted, Retry};
use keylane_testkit::Lines;
use keylane_testkit::reference::ReferenceServer;
use keylane_testkit::scenario::{paused, until};
use tracing::subscriber::DefaultGuard;

/// The fields of the first message: those of its source, as the log shows them.
const ORIGIN: &str = "source=reference position=0:0#1 id=order-4711";

/// What a case does with its message.
enum Ends {
    Fails,
    Panics,
    IsLate,
}

/// Refuses the first letter.
struct Refuses;

#[keylane::async_trait]
impl DeadLetterSink<Bytes, RawMessage, &'static str> for Refuses {
    async fn accept(
        &self,
        letter: &DeadLetter<Bytes, RawMessage, &'static str>,
    ) -> Result<(), BoxError> {
        let _ = letter;
        Err("the disk is full".into())
    }
}

pub(crate) fn lines_of(test: impl AsyncFnOnce(&Lines)) -> Vec<String> {
    let lines = Lines::new();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_writer(lines.writer())
        .finish();
    let _on = keylane_testkit::set_subscriber(subscriber);
    paused().block_on(test(&lines));
    lines.all()
}

fn published() -> ReferenceServer {
    let server = ReferenceServer::new(Features::new().survives_restart().dead_letters());
    let mut message = RawMessage::new("250").key("user-7");
    message.id = Some("order-4711".into());
    server.publish([message]);
    server
}

/// The lines about a message that ends so at each of two attempts.
fn lines_with(
    ends: Ends,
    on_exhausted: OnExhausted<Bytes, RawMessage, &'static str>,
    waits_for: &str,
) -> Vec<String> {
    let ends = Arc::new(ends);
    lines_of(async |lines| {
        let server = published();
        let orders = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .trace_keys()
            .attempt_timeout(Duration::from_secs(1))
            .retry(Retry::fixed(Duration::from_secs(1)).max_attempts(2))
            .on_exhausted(on_exhausted)
            .spawn(move |_: Context<Bytes>, _: RawMessage| {
                let ends = ends.clone();
                async move {
                    match *ends {
                        Ends::Fails => Err::<(), _>("no"),
                        Ends::Panics => panic!("the test wants it"),
                        Ends::IsLate => std::future::pending().await,
                    }
                }
            })
            .unwrap();
        let intake = orders.consume(server.source()).unwrap();
        until(|| !lines.with(waits_for).is_empty()).await;
        intake.stop().within(Duration::from_secs(1)).await;
    })
}

#[test]
fn each_line_about_a_message_of_a_source_says_which_one_it_is() {
    let refused = || OnExhausted::dead_letter(Refuses);
    let cases = [
        (Ends::Fails, OnExhausted::Discard, "it is discarded"),
        (Ends::Panics, OnExhausted::Discard, "it is discarded"),
        (Ends::IsLate, OnExhausted::Discard, "it is discarded"),
        (
            Ends::Fails,
            OnExhausted::AtSource,
            "it becomes a dead letter",
        ),
        (
            Ends::Fails,
            refused(),
            "ERROR keylane: the dead-letter sink did not accept",
        ),
        (Ends::Fails, OnExhausted::Halt, "a lane is halted"),
    ];
    for (ends, on_exhausted, last) in cases {
        let lines = lines_with(ends, on_exhausted, last);
        let attempts: Vec<_> = lines
            .iter()
            .filter(|line| line.contains("an attempt failed"))
            .collect();
        assert_eq!(attempts.len(), 2, "{lines:#?}");
        for what in ["an attempt failed", "gave up on the message", last] {
            let about: Vec<_> = lines.iter().filter(|line| line.contains(what)).collect();
            assert!(!about.is_empty(), "{what}: {lines:#?}");
            for line in about {
                assert!(line.contains(ORIGIN), "{line}");
                assert!(line.contains("key=b\"user-7\""), "{line}");
            }
        }
    }
}

thread_local! {
    /// The subscriber of a thread of a runtime.
    static ON: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) };
}

/// The line about a handler that blocks until the line is written: the driver has written it on
/// another thread. `None`: the machine let that thread wait for so long that it was taken for
/// blocked, too. Then the line comes from outside the runtime.
fn line_of_a_block(stuck_after: Duration) -> Option<String> {
    let lines = Lines::new();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(lines.writer())
        .finish();
    let subscriber = Arc::new(subscriber);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time();
    let runtime = runtime.on_thread_start(move || {
        let on = keylane_testkit::set_subscriber(Arc::clone(&subscriber));
        ON.set(Some(on));
    });
    let blocked = lines.clone();
    let line = move || blocked.with("a handler blocks its thread").pop();
    let run = async move {
        let orders = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .trace_keys()
            .on_exhausted(OnExhausted::Discard)
            .stuck_after(stuck_after)
            .spawn(move |_: RawMessage| {
                let until = Instant::now() + 2 * stuck_after + Duration::from_secs(10);
                while line().is_none() && Instant::now() < until {
                    // What must not be done.
                    std::thread::sleep(Duration::from_millis(1));
                }
                async move { Ok::<_, BoxError>(()) }
            })
            .unwrap();
        let intake = orders.consume(published().source()).unwrap();
        until(|| intake.stats().acked == 1).await;
        intake.stop().await;
    };
    let runtime = runtime.build().unwrap();
    // On a thread of the runtime.
    runtime.block_on(async { tokio::spawn(run).await }).unwrap();
    let all = lines.with("a handler blocks its thread");
    assert!(all.len() <= 1, "one line: {all:#?}");
    all.into_iter().next()
}

#[test]
fn the_line_about_a_handler_that_blocks_says_which_message_it_has() {
    let times = [20, 200, 2_000, 10_000].map(Duration::from_millis);
    let line = times.into_iter().find_map(line_of_a_block);
    let line = line.expect("the thread is not taken for blocked each time");
    let fields = format!("key=b\"user-7\" {ORIGIN} elapsed=");
    assert!(line.contains(&fields), "{line}");
}

#[test]
fn a_message_that_cannot_be_decoded_is_named_in_the_log() {
    let lines = lines_of(async |lines| {
        let orders = Dispatcher::builder(|order: &u64| *order)
            .on_exhausted(OnExhausted::AtSource)
            .spawn(|_: u64| async move { Ok::<(), &str>(()) })
            .unwrap();
        let source = published().source();
        let source = source.decode(|_: &RawMessage| Err::<u64, BoxError>("no number".into()));
        let intake = orders.consume(source).unwrap();
        until(|| !lines.with("cannot be decoded").is_empty()).await;
        intake.stop().await;
    });
    let about: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("cannot be decoded"))
        .collect();
    assert!(about.iter().all(|line| line.contains(ORIGIN)), "{lines:#?}");
    // Only its hash: the decoding source does not know whether the key itself may be shown.
    assert!(
        about.iter().all(|line| line.contains("key=#")),
        "{lines:#?}"
    );
}

/// Accepts no letter.
struct RefusesRaw;

#[keylane::async_trait]
impl RawLetterSink for RefusesRaw {
    async fn accept(&self, _: &RawLetter) -> Result<(), BoxError> {
        Err("the disk is full".into())
    }
}

#[test]
fn a_letter_of_a_message_that_cannot_be_decoded_is_named_in_the_log() {
    let lines = lines_of(async |lines| {
        let orders = Dispatcher::builder(|order: &u64| *order)
            .on_exhausted(OnExhausted::Discard)
            .spawn(|_: u64| async move { Ok::<(), &str>(()) })
            .unwrap();
        let server = published();
        server.publish([RawMessage::new("without a key")]);
        let decode = |_: &RawMessage| Err::<u64, BoxError>("no number".into());
        let source = server.source().decode(decode).letters(RefusesRaw);
        let intake = orders.consume(source).unwrap();
        until(|| lines.with("was not accepted").len() >= 4).await;
        intake.stop().await;
    });
    let of = |origin: &str| {
        let refused = lines
            .iter()
            .filter(|line| line.contains("was not accepted"));
        Vec::from_iter(refused.filter(|line| line.contains(origin)))
    };
    let (keyed, keyless) = (of(ORIGIN), of("position=0:1#2"));
    assert!(!keyed.is_empty() && !keyless.is_empty(), "{lines:#?}");
    assert!(
        keyed.iter().all(|line| line.contains("key=#")),
        "{lines:#?}"
    );
    assert!(
        keyless.iter().all(|line| line.contains("key=- ")),
        "{lines:#?}"
    );
}

#[test]
fn a_decoded_message_is_named_as_its_raw_one() {
    let lines = lines_of(async |_| {
        let server = published();
        let orders = Dispatcher::builder(|order: &u64| *order)
            .on_exhausted(OnExhausted::Discard)
            .spawn(|_: u64| async move { Err::<(), _>("no") })
            .unwrap();
        let source = server.source().decode(|_: &RawMessage| Ok(7_u64));
        let intake = orders.consume(source).unwrap();
        until(|| intake.stats().acked == 1).await;
        intake.stop().await;
    });
    let about: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("attempt"))
        .collect();
    assert_eq!(about.len(), 2, "{lines:#?}");
    assert!(about.iter().all(|line| line.contains(ORIGIN)), "{lines:#?}");
}

/// All messages fail before the driver of their source comes to it. Lines beyond the bound are
/// written by the engine, without their positions.
#[test]
fn no_line_is_lost_when_the_driver_is_behind() {
    const MESSAGES: usize = 3_000;
    let lines = lines_of(async |_| {
        let server = ReferenceServer::new(Features::new().survives_restart());
        server.publish((0..MESSAGES).map(|n| RawMessage::new("").key(n.to_string())));
        let (let_go, _) = tokio::sync::watch::channel(false);
        let wait = let_go.clone();
        let orders = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .concurrency(MESSAGES)
            .on_exhausted(OnExhausted::Discard)
            .spawn(move |_: RawMessage| {
                let mut wait = wait.subscribe();
                async move {
                    wait.wait_for(|go| *go).await.unwrap();
                    Err::<(), _>("no")
                }
            })
            .unwrap();
        let settings = keylane::consume::IntakeSettings::new().held(MESSAGES);
        let intake = orders.consume_with(server.source(), settings).unwrap();
        until(|| orders.stats().in_flight == MESSAGES).await;
        let_go.send_replace(true);
        until(|| intake.stats().acked as usize == MESSAGES).await;
        intake.stop().await;
    });
    for what in ["an attempt failed", "gave up on the message"] {
        let about: Vec<_> = lines.iter().filter(|line| line.contains(what)).collect();
        assert_eq!(about.len(), MESSAGES, "{what}");
        let is_named = |line: &&&String| line.contains("source=reference");
        assert_eq!(about.iter().filter(is_named).count(), MESSAGES, "{what}");
        let named = about.iter().filter(|line| line.contains("position="));
        let named = named.count();
        assert!((1..MESSAGES).contains(&named), "{named} of {MESSAGES}");
    }
}
