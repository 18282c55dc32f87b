//! A source recalls a message at the moment at which it halts.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::source::{Deliveries, Delivery, Features, Received, Settlement, Source, SourceError};
use keylane::{Dispatcher, OnExhausted};
use keylane_testkit::ScriptError;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Hands one message over, and recalls it when it fails.
struct Recalls {
    calls: u32,
    fails: Arc<AtomicBool>,
    /// The recall is over.
    recalled: std_mpsc::Sender<()>,
    settled: mpsc::UnboundedSender<Settlement<u64>>,
}

impl Source for Recalls {
    type Message = u64;
    type Position = u64;

    fn features(&self) -> Features {
        Features::new().nack()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<u64, u64>,
    ) -> Result<Received<u64>, SourceError> {
        self.calls += 1;
        match self.calls {
            1 => {
                into.push(Delivery::new(7, 7));
                Ok(Received::Messages)
            }
            2 => {
                // A task that the handler's thread wakes may be queued behind it.
                while !self.fails.load(Ordering::SeqCst) {
                    sleep(Duration::from_millis(1)).await;
                }
                Ok(Received::Recalled(vec![7]))
            }
            // The driver has done what it does about it.
            _ => {
                let _ = self.recalled.send(());
                std::future::pending().await
            }
        }
    }

    async fn settle(&mut self, settled: &[Settlement<u64>]) -> Result<(), SourceError> {
        for settlement in settled {
            let _ = self.settled.send(settlement.clone());
        }
        Ok(())
    }
}

/// Shown when its failure is about to halt the key, and not before the recall is over.
struct Slow {
    fails: Arc<AtomicBool>,
    recalled: Mutex<Option<std_mpsc::Receiver<()>>>,
}

impl fmt::Debug for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fails.store(true, Ordering::SeqCst);
        // It is shown more than once.
        if let Some(recalled) = self.recalled.lock().unwrap().take() {
            let _ = recalled.recv();
        }
        f.write_str("slow")
    }
}

async fn recalled_as_it_halts(key: Option<u64>) {
    let fails = Arc::new(AtomicBool::new(false));
    let (say_recalled, recalled) = std_mpsc::channel();
    let (say_settled, mut settled) = mpsc::unbounded_channel();
    let slow = Slow {
        fails: Arc::clone(&fails),
        recalled: Mutex::new(Some(recalled)),
    };
    let slow = Mutex::new(Some(slow));
    let items = Dispatcher::key_by_opt(move |_: &u64| key)
        .on_exhausted(OnExhausted::Halt)
        .spawn(move |_: u64| {
            let slow = slow.lock().unwrap().take();
            async move { slow.map_or(Ok::<(), Slow>(()), Err) }
        })
        .unwrap();
    let source = Recalls {
        calls: 0,
        fails,
        recalled: say_recalled,
        settled: say_settled,
    };
    let intake = items.consume(source).unwrap();
    let settlement = settled.recv().await.expect("the source is there");
    assert!(!settlement.outcome.is_ack(), "{settlement:?}");
    intake.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_is_recalled_as_it_halts_goes_back() {
    recalled_as_it_halts(Some(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_is_recalled_as_it_halts_goes_back_without_a_key() {
    recalled_as_it_halts(None).await;
}

/// Hands over two messages, and a third when it is told to, and recalls the last two at once.
struct RecallsLate {
    calls: u32,
    goes_on: Arc<AtomicBool>,
    settled: mpsc::UnboundedSender<Settlement<u64>>,
}

impl Source for RecallsLate {
    type Message = u64;
    type Position = u64;

    fn features(&self) -> Features {
        Features::new().nack()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<u64, u64>,
    ) -> Result<Received<u64>, SourceError> {
        let handed_over = match self.calls {
            0 => vec![0, 1],
            1 => {
                while !self.goes_on.load(Ordering::SeqCst) {
                    sleep(Duration::from_millis(1)).await;
                }
                vec![2]
            }
            2 => Vec::new(),
            _ => std::future::pending().await,
        };
        self.calls += 1;
        if handed_over.is_empty() {
            return Ok(Received::Recalled(vec![1, 2]));
        }
        for id in handed_over {
            into.push(Delivery::new(id, id));
        }
        Ok(Received::Messages)
    }

    async fn settle(&mut self, settled: &[Settlement<u64>]) -> Result<(), SourceError> {
        for settlement in settled {
            let _ = self.settled.send(settlement.clone());
        }
        Ok(())
    }
}

/// A message that is on its way into its lane at the recall does not start either: it would overtake
/// the one that was found there.
#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_at_the_recall_goes_back() {
    let goes_on = Arc::new(AtomicBool::new(false));
    let (say_settled, mut settled) = mpsc::unbounded_channel();
    let gate = keylane_testkit::Gate::new();
    let passes = gate.clone();
    let started = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&started);
    let items = Dispatcher::builder(|_: &u64| 7_u64)
        .on_exhausted(OnExhausted::Halt)
        .spawn(move |id: u64| {
            seen.lock().unwrap().push(id);
            let passes = passes.clone();
            async move {
                passes.pass().await;
                Ok::<(), ScriptError>(())
            }
        })
        .unwrap();
    let source = RecallsLate {
        calls: 0,
        goes_on: Arc::clone(&goes_on),
        settled: say_settled,
    };
    let intake = items.consume(source).unwrap();
    gate.arrivals(1).await;
    goes_on.store(true, Ordering::SeqCst);
    let mut returned = Vec::new();
    while returned.len() < 2 {
        if returned.len() == 1 {
            gate.open();
        }
        let Settlement {
            position, outcome, ..
        } = settled.recv().await.expect("the source is there");
        assert_eq!(outcome.is_ack(), position == 0, "{position}: {outcome:?}");
        returned.extend((position > 0).then_some(position));
    }
    assert_eq!(returned, [1, 2]);
    assert_eq!(*started.lock().unwrap(), [0]);
    let report = intake.stop().await;
    assert_eq!((report.acked, report.nacked), (1, 2));
}
