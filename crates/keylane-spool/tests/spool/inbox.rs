//! The inbox as the sink: every message is in it once, in the order of its key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_inbox::Inbox;
use keylane_inbox::error::OpenError;
use keylane_inbox::store::{EmbeddedStore, Settings};
use keylane_spool::{
    BoxError, FlushError, Message, OnRefused, Persist, Refused, SinkError, Spool, SpoolSink,
    Spooled, async_trait,
};

use crate::faulty::Disk;
use crate::support::{check_sums, eventually};

const MS: Duration = Duration::from_millis(1);

/// How long to wait for what should happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// An inbox in memory, and its disk.
fn inbox_on_disk(change: impl FnOnce(&mut Settings)) -> (Inbox, Disk) {
    let disk = Disk::default();
    let backend = disk.clone();
    let mut settings = Settings::default();
    change(&mut settings);
    let store = EmbeddedStore::open_with_backend(move || Ok(backend.clone()), settings);
    (Inbox::with_store(Arc::new(store.unwrap())), disk)
}

/// `key=payload` of everything that waits, in its order.
async fn content(inbox: &Inbox) -> Vec<String> {
    let messages = inbox.store().scan(0, usize::MAX, usize::MAX).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let messages = messages.iter();
    messages
        .map(|message| format!("{}={}", text(&message.key), text(&message.payload)))
        .collect()
}

/// The payloads of each key, which are numbers, ascend from 0 by one: none twice, none missing.
fn check_each_once(content: &[String], messages: usize) {
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    for message in content {
        let (key, number) = message.split_once('=').unwrap();
        let next = next.entry(key).or_default();
        assert_eq!(number.parse(), Ok(*next), "{key}");
        *next += 1;
    }
    assert_eq!(content.len(), messages);
}

/// Writes to an inbox, and then says now and then that it has failed.
struct Forgetful {
    inbox: Inbox,
    calls: AtomicUsize,
}

#[async_trait]
impl SpoolSink for Forgetful {
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
        self.inbox.write(batch).await?;
        match self.calls.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => Err(SinkError::failed("the answer was lost")),
            _ => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_a_push_to_a_handler_in_the_order_of_each_key() {
    const KEYS: usize = 7;
    const MESSAGES: usize = 700;
    let dir = tempfile::tempdir().unwrap();
    let inbox = Inbox::open(dir.path().join("inbox")).await.unwrap();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let orders = {
        let handled = Arc::clone(&handled);
        Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .on_exhausted(OnExhausted::AtSource)
            .spawn(move |message: RawMessage| {
                let handled = Arc::clone(&handled);
                async move {
                    tokio::task::yield_now().await;
                    let key = String::from_utf8_lossy(&message.key.unwrap()).into_owned();
                    let payload = String::from_utf8_lossy(&message.payload).into_owned();
                    handled.lock().unwrap().push(format!("{key}={payload}"));
                    Ok::<_, std::io::Error>(())
                }
            })
            .unwrap()
    };
    let intake = orders.consume(inbox.source()).unwrap();
    let sink = Forgetful {
        inbox: inbox.clone(),
        calls: AtomicUsize::new(0),
    };
    let spool = Spool::builder(sink)
        .dir(dir.path().join("spool"))
        .persist(Persist::EveryMessages(100))
        .batch(16, 1 << 20, MS)
        .in_flight(3)
        .backoff(MS, 5 * MS)
        .open()
        .await
        .unwrap();
    for n in 0..MESSAGES {
        let key = format!("key-{}", n % KEYS);
        spool.push(key, (n / KEYS).to_string()).await.unwrap();
    }
    let report = spool.close().await;
    check_sums(&report);
    assert_eq!(report.delivered as usize, MESSAGES);
    eventually(|| handled.lock().unwrap().len() >= MESSAGES).await;
    let intake = intake.stop().await;
    assert_eq!(intake.acked as usize, MESSAGES, "{intake}");
    check_each_once(&handled.lock().unwrap(), MESSAGES);
    assert_eq!(inbox.stats().await.unwrap().waiting, 0);
    inbox.close().await.unwrap();
}

#[tokio::test]
async fn key_payload_headers_and_id_are_kept() {
    let (inbox, _disk) = inbox_on_disk(|_| {});
    let ids = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let (inbox, ids) = (inbox.clone(), Arc::clone(&ids));
        move |batch: Vec<Spooled>| {
            let (inbox, ids) = (inbox.clone(), Arc::clone(&ids));
            async move {
                ids.lock().unwrap().extend(batch.iter().map(|m| m.id));
                inbox.write(&batch).await
            }
        }
    };
    let spool = Spool::builder(sink).open().await.unwrap();
    let message = Message::new("", vec![0, 255])
        .header("a", "1")
        .header("a", vec![0]);
    spool.push_message(message).await.unwrap();
    spool.close().await;
    let stored = inbox.store().scan(0, 10, 1 << 20).await.unwrap();
    let [stored] = &stored[..] else {
        panic!("{stored:?}")
    };
    assert_eq!(
        (&stored.key[..], &stored.payload[..]),
        (&[][..], &[0, 255][..])
    );
    let headers = stored.headers.iter();
    let headers: Vec<_> = headers.map(|h| (&h.name[..], &h.value[..])).collect();
    assert_eq!(headers, [("a", &b"1"[..]), ("a", &[0][..])]);
    let id = ids.lock().unwrap()[0].to_bytes();
    assert_eq!(stored.id.as_ref().unwrap().as_bytes(), id);
    assert_eq!(stored.version, None);
}

/// The process dies when the inbox has committed a batch, and before the spool knows it.
#[tokio::test]
async fn a_crash_between_the_two_commits_leaves_no_duplicates() {
    let dir = tempfile::tempdir().unwrap();
    let mut pushed = 0;
    for batches in 1..=4 {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "inbox::child", "--nocapture"])
            .env("KEYLANE_SPOOL_TO_INBOX", dir.path())
            .env("KEYLANE_SPOOL_FROM", pushed.to_string())
            .env("KEYLANE_SPOOL_BATCHES", batches.to_string())
            .output()
            .unwrap();
        assert!(!child.status.success(), "it does not crash: {child:?}");
        pushed += PUSHES;
        // What was confirmed to the spool is not there twice; what was not is, until its ids tell.
        let stored = {
            let inbox = open(dir.path()).await;
            let stored = inbox.stats().await.unwrap().waiting as usize;
            inbox.close().await.unwrap();
            stored
        };
        let spool = Spool::builder(|_: Vec<Spooled>| async { Err(SinkError::failed("not now")) });
        let spool = spool.dir(dir.path().join("spool")).open().await.unwrap();
        let recovered = spool.stats().recovered as usize;
        spool.close().within(Duration::ZERO).await;
        assert!(
            stored + recovered > pushed,
            "{stored} in the inbox and {recovered} in the spool, of {pushed}: not the crash meant"
        );
    }
    let inbox = open(dir.path()).await;
    let spool = Spool::builder(inbox.clone()).dir(dir.path().join("spool"));
    let report = spool.open().await.unwrap().close().await;
    check_sums(&report);
    assert_eq!(report.left_on_disk, 0);
    check_each_once(&content(&inbox).await, pushed);
    inbox.close().await.unwrap();
}

const PUSHES: usize = 40;
const CHILD_KEYS: usize = 4;

/// What crashes. Nothing, unless it is started by the test above.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("KEYLANE_SPOOL_TO_INBOX") else {
        return;
    };
    let dir = PathBuf::from(dir);
    let number = |name: &str| -> usize { std::env::var(name).unwrap().parse().unwrap() };
    let from = number("KEYLANE_SPOOL_FROM");
    let batches = number("KEYLANE_SPOOL_BATCHES");
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let is_open = Arc::new(AtomicBool::new(false));
        let sink = Crashing {
            inbox: open(&dir).await,
            left: AtomicUsize::new(batches),
            is_open: Arc::clone(&is_open),
        };
        let spool = Spool::builder(sink)
            .dir(dir.join("spool"))
            .batch(8, 1 << 20, MS)
            .open()
            .await
            .unwrap();
        let accepted: Vec<_> = (from..from + PUSHES)
            .map(|n| {
                let key = format!("key-{}", n % CHILD_KEYS);
                let number = (n / CHILD_KEYS).to_string();
                spool.try_push(key, number).unwrap()
            })
            .collect();
        for accepted in accepted {
            accepted.stored().await.unwrap();
        }
        is_open.store(true, Ordering::Relaxed);
        spool.flush().await.unwrap();
    });
}

struct Crashing {
    inbox: Inbox,
    /// So many batches, and then it crashes.
    left: AtomicUsize,
    /// All messages are in the spool.
    is_open: Arc<AtomicBool>,
}

#[async_trait]
impl SpoolSink for Crashing {
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
        while !self.is_open.load(Ordering::Relaxed) {
            tokio::time::sleep(MS).await;
        }
        self.inbox.write(batch).await?;
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            std::process::abort();
        }
        Ok(())
    }
}

/// The process that a test has started, or one that another test starts right now, has its lock for
/// a moment.
async fn open(dir: &Path) -> Inbox {
    for _ in 0..5_000 {
        match Inbox::open(dir.join("inbox")).await {
            Err(OpenError::Locked { .. }) => tokio::time::sleep(MS).await,
            opened => return opened.unwrap(),
        }
    }
    panic!("the inbox stays locked");
}

/// One of each kind, in one batch: what is too large is refused, and what is not is stored.
#[tokio::test]
async fn what_is_beyond_a_limit_of_the_inbox_is_refused() {
    let (inbox, _disk) = inbox_on_disk(|settings| {
        settings.payload_bytes = 1_000;
        settings.key_bytes = 10;
    });
    let letters = Arc::new(Mutex::new(Vec::new()));
    let shelf = Arc::clone(&letters);
    let accept = move |letter: Refused| {
        let key = String::from_utf8_lossy(&letter.message.key).into_owned();
        shelf.lock().unwrap().push((key, letter.reason));
        async move { Ok::<(), BoxError>(()) }
    };
    let spool = Spool::builder(inbox.clone())
        .batch(100, 1 << 20, 50 * MS)
        .on_refused(OnRefused::dead_letter(accept))
        .open()
        .await
        .unwrap();
    spool.push("a", "0").await.unwrap();
    spool.push("a", vec![0; 1_001]).await.unwrap();
    spool.push("a", "1").await.unwrap();
    spool.push("b", vec![0; 5_000]).await.unwrap();
    spool.push("b", "0").await.unwrap();
    spool.push("a key of 19 bytes..", "0").await.unwrap();
    let mut many = Message::new("c", "");
    (0..257).for_each(|n| many.headers.add(n.to_string(), ""));
    spool.push_message(many).await.unwrap();
    spool.push("c", "0").await.unwrap();
    let report = spool.close().within(PATIENCE).await;
    check_sums(&report);
    assert_eq!((report.delivered, report.dead_lettered), (4, 4));
    check_each_once(&content(&inbox).await, 4);
    let mut letters = letters.lock().unwrap();
    letters.sort();
    let keys: Vec<_> = letters.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, ["a", "a key of 19 bytes..", "b", "c"]);
    for ((_, reason), part) in letters.iter().zip(["payload", "key", "payload", "headers"]) {
        assert!(reason.contains(part), "{reason}");
    }
}

#[tokio::test]
async fn what_is_refused_halts_its_key_and_is_not_tried_for_ever() {
    let (inbox, _disk) = inbox_on_disk(|settings| settings.payload_bytes = 100);
    let spool = Spool::builder(inbox.clone()).open().await.unwrap();
    for (key, payload) in [("a", " ".repeat(101)), ("a", "1".into()), ("b", "0".into())] {
        spool.push(key, payload).await.unwrap();
    }
    let flush = tokio::time::timeout(PATIENCE, spool.flush()).await;
    assert_eq!(flush, Ok(Err(FlushError::Halted { keys: 1 })));
    assert!(spool.stats().failing.is_none());
    assert_eq!(content(&inbox).await, ["b=0"]);
    assert_eq!(spool.skip("a").unwrap().payload.len(), 101);
    spool.flush().await.unwrap();
    assert_eq!(content(&inbox).await, ["b=0", "a=1"]);
}

/// Its disk is full, or its writes or its syncs fail, for a while: whether a commit came through or
/// not, every message is there once.
#[tokio::test]
async fn an_inbox_that_fails_for_a_while() {
    let cases = (1..16).flat_map(|n| (0..3).map(move |kind| (n, kind)));
    // At the same time: each of them waits for its store to be opened again.
    let cases = cases.map(|(n, kind)| tokio::spawn(fails_for_a_while(n, kind)));
    for case in Vec::from_iter(cases) {
        case.await.unwrap();
    }
}

async fn fails_for_a_while(n: u64, kind: usize) {
    const MESSAGES: usize = 60;
    let (inbox, disk) = inbox_on_disk(|_| {});
    let spool = Spool::builder(inbox.clone())
        .batch(8, 1 << 20, Duration::ZERO)
        .in_flight(2)
        .backoff(MS, 20 * MS)
        .open()
        .await
        .unwrap();
    let push = |n: usize| {
        let spool = spool.clone();
        async move {
            let key = format!("key-{}", n % 3);
            spool.push(key, (n / 3).to_string()).await.unwrap();
        }
    };
    push(0).await;
    spool.flush().await.unwrap();
    let fails = disk.fails();
    [&fails.writes, &fails.syncs, &fails.full][kind].store(n, Ordering::Relaxed);
    for n in 1..MESSAGES {
        push(n).await;
    }
    let mut failing = None;
    while failing.is_none() && spool.stats().waiting > 0 {
        tokio::time::sleep(MS).await;
        failing = spool.stats().failing;
    }
    if let Some(failing) = &failing {
        assert!(
            failing.error.contains("did not confirm") || failing.error.contains("opened again"),
            "{failing:?}"
        );
    }
    fails.mend();
    spool.flush().await.unwrap();
    assert!(spool.stats().failing.is_none());
    let report = spool.close().await;
    check_sums(&report);
    assert_eq!(report.delivered as usize, MESSAGES);
    check_each_once(&content(&inbox).await, MESSAGES);
    inbox.close().await.unwrap();
}

/// A failure like others: nothing is refused, and the next one delivers.
#[tokio::test]
async fn an_inbox_that_was_closed() {
    let dir = tempfile::tempdir().unwrap();
    let inbox = open(dir.path()).await;
    let open_spool = |inbox: &Inbox| {
        let spool = Spool::builder(inbox.clone());
        spool.dir(dir.path().join("spool")).open()
    };
    let spool = open_spool(&inbox).await.unwrap();
    spool.push("a", "0").await.unwrap();
    spool.flush().await.unwrap();
    inbox.close().await.unwrap();
    spool.push("a", "1").await.unwrap();
    eventually(|| spool.stats().failing.is_some()).await;
    assert_eq!(spool.stats().failing.unwrap().error, "the inbox is closed");
    let report = spool.close().within(Duration::ZERO).await;
    check_sums(&report);
    assert_eq!((report.delivered, report.left_on_disk), (1, 1));
    let inbox = open(dir.path()).await;
    let spool = open_spool(&inbox).await.unwrap();
    assert_eq!(spool.close().await.delivered, 1);
    check_each_once(&content(&inbox).await, 2);
    inbox.close().await.unwrap();
}

/// A batch may have more messages than a call may.
#[tokio::test]
async fn a_batch_that_is_too_large_for_one_call_goes_in_parts() {
    const MESSAGES: usize = (1 << 16) + 10;
    let (inbox, _disk) = inbox_on_disk(|_| {});
    let spool = Spool::builder(inbox.clone())
        .batch(1 << 20, 1 << 30, Duration::MAX)
        .timeout(Duration::from_secs(300))
        .open()
        .await
        .unwrap();
    for n in 0..MESSAGES {
        drop(spool.try_push("a", n.to_string()).unwrap());
    }
    let report = spool.close().within(2 * PATIENCE).await;
    check_sums(&report);
    assert_eq!(report.delivered as usize, MESSAGES);
    assert_eq!(inbox.stats().await.unwrap().waiting as usize, MESSAGES);
    let first = inbox.store().scan(0, MESSAGES, usize::MAX).await.unwrap();
    let numbers = first.iter().map(|message| {
        let text = std::str::from_utf8(&message.payload).unwrap();
        text.parse::<usize>().unwrap()
    });
    assert!(numbers.eq(0..MESSAGES));
}
