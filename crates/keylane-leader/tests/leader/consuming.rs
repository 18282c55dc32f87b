//! A leader that consumes a source: the queue loses and reorders nothing over changes.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::source::{Features, RawMessage};
use keylane::{Context, Dispatcher, OnExhausted};
use keylane_leader::{Office, consuming};
use keylane_testkit::reference::ReferenceServer;

use crate::support::{Faulty, SECOND, candidate, process};

/// What was handled: the key, the number of the message, and the token of the term.
type Handled = Arc<Mutex<Vec<(u8, u32, u64)>>>;

fn consume(
    store: &Arc<Faulty>,
    server: &ReferenceServer,
    handled: &Handled,
    name: &'static str,
    takes: Duration,
) -> Office {
    let (server, handled) = (server.clone(), Arc::clone(handled));
    let career = consuming(move |term| {
        let (server, handled) = (server.clone(), Arc::clone(&handled));
        async move {
            let orders = Dispatcher::builder(|message: &RawMessage| message.key.clone())
                .leased_by(term.lanes())
                .on_exhausted(OnExhausted::Halt)
                .spawn(
                    move |ctx: Context<Option<bytes::Bytes>>, message: RawMessage| {
                        let handled = Arc::clone(&handled);
                        async move {
                            tokio::time::sleep(takes).await;
                            let key = message.key.unwrap()[0];
                            let number =
                                u32::from_be_bytes(message.payload[..].try_into().unwrap());
                            let token = ctx.lease_token().unwrap();
                            handled.lock().unwrap().push((key, number, token));
                            Ok::<_, io::Error>(())
                        }
                    },
                )
                .map_err(io::Error::other)?;
            let intake = orders.consume(server.source()).map_err(io::Error::other)?;
            Ok::<_, io::Error>((orders, intake))
        }
    });
    let career = career.drain_within(2 * SECOND);
    candidate(&process(store), name).run(career).unwrap()
}

fn publish(server: &ReferenceServer, count: u32) {
    let messages = (0..count).map(|number| {
        let key = vec![u8::try_from(number % 7).unwrap()];
        RawMessage::new(number.to_be_bytes().to_vec()).key(key)
    });
    server.publish(messages);
}

async fn until_left(server: &ReferenceServer, most: usize) {
    let waits = async {
        while server.left() > most {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let came = tokio::time::timeout(300 * SECOND, waits).await;
    assert!(came.is_ok(), "{} are left", server.left());
}

fn in_order(handled: &Handled) -> usize {
    let mut last: HashMap<u8, (u32, u64)> = HashMap::new();
    let handled = handled.lock().unwrap();
    for (key, number, token) in handled.iter() {
        if let Some((before, under)) = last.insert(*key, (*number, *token)) {
            assert!(*number > before, "{number} of key {key} after {before}");
            assert!(*token >= under, "{token} after {under}");
        }
    }
    handled.len()
}

#[tokio::test(start_paused = true)]
async fn the_queue_loses_and_reorders_nothing_over_changes() {
    let (store, handled) = (Arc::default(), Handled::default());
    let server = ReferenceServer::new(Features::new());
    publish(&server, 2_000);
    let takes = Duration::from_millis(100);
    let offices = ["a", "b", "c"].map(|name| consume(&store, &server, &handled, name, takes));
    for left in [1_800, 1_500, 1_100, 600, 200] {
        until_left(&server, left).await;
        let leader = offices.iter().find(|office| office.leads());
        // Between two leaders there is none.
        if let Some(leader) = leader {
            let _ = leader.resign();
        }
    }
    until_left(&server, 0).await;
    assert_eq!(in_order(&handled), 2_000, "each is handled once");
    let tokens: std::collections::BTreeSet<u64> = handled
        .lock()
        .unwrap()
        .iter()
        .map(|(.., token)| *token)
        .collect();
    assert!(tokens.len() >= 4, "{tokens:?}");
    for office in offices {
        office.close().await;
    }
    assert_eq!(server.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_term_is_released_after_the_last_ack_is_confirmed() {
    let (store, handled) = (Arc::default(), Handled::default());
    let server = ReferenceServer::new(Features::new());
    publish(&server, 50);
    let a = consume(&store, &server, &handled, "a", Duration::from_millis(500));
    until_left(&server, 45).await;
    a.close().await;
    // Nothing is held, and what was handled is confirmed, when the term is free.
    assert_eq!(server.held(), 0);
    assert_eq!(50 - server.left(), in_order(&handled));
}

#[tokio::test(start_paused = true)]
async fn a_lost_leader_handles_nothing_more() {
    let (store, handled) = (Arc::<Faulty>::default(), Handled::default());
    let server = ReferenceServer::new(Features::new());
    publish(&server, 200);
    let a = consume(&store, &server, &handled, "a", Duration::from_millis(400));
    until_left(&server, 180).await;
    store.change(|faults| faults.renews_nothing = true);
    while a.leads() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let count = in_order(&handled);
    drop(a);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(
        in_order(&handled),
        count,
        "a handler went on without its term"
    );
    store.change(|faults| faults.renews_nothing = false);
    let b = consume(&store, &server, &handled, "b", Duration::from_millis(1));
    until_left(&server, 0).await;
    b.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_in_another_history_starts_nothing_more() {
    let (store, handled) = (Arc::<Faulty>::default(), Handled::default());
    let server = ReferenceServer::new(Features::new());
    publish(&server, 200);
    let a = consume(&store, &server, &handled, "a", Duration::from_millis(400));
    until_left(&server, 180).await;
    store.change(|faults| faults.history += 1);
    while a.leads() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let count = in_order(&handled);
    drop(a); // it does not stand again
    tokio::time::sleep(10 * SECOND).await;
    // One of each key was under way.
    let more = in_order(&handled) - count;
    assert!(
        more <= 7,
        "{more} were handled under a token of another history"
    );
}
