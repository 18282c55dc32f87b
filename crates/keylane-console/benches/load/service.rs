//! The service: a dispatcher with busy lanes, its senders, and a console.

use std::io::{BufRead, stdin};
use std::net::SocketAddr;
use std::time::Duration;

use keylane::Dispatcher;
use keylane_console::Console;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The argument of a process that is the service, whose instructions are counted.
pub(crate) const ARGUMENT: &str = "--service";

/// How many messages that process handles.
pub(crate) const MESSAGES: u64 = 200_000;

const LANES: u64 = 10_000;
const SENDERS: u64 = 4;

pub(crate) type Orders = Dispatcher<u64, u64, (), std::io::Error>;

/// The dispatcher, and the address of the console.
pub(crate) fn start(runtime: &Runtime) -> (Orders, SocketAddr) {
    let _entered = runtime.enter();
    let orders = Dispatcher::builder(lane_of)
        .capacity(100_000)
        .concurrency(20_000)
        .spawn(|order: u64| async move {
            // Some wait, so that there are lanes to see. They are of all lanes, so that the processor
            // limits the throughput, and not the slowest lane.
            match order % 100 {
                0 => tokio::time::sleep(Duration::from_millis(200)).await,
                _ => tokio::task::yield_now().await,
            }
            Ok::<(), std::io::Error>(())
        })
        .expect("it starts");
    let console = Console::builder().dispatcher("orders", &orders);
    let console = console.build().expect("it is built");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
    let listener = listener.expect("there is a port");
    let address = listener.local_addr().expect("it has one");
    runtime.spawn(async move { console.serve(listener).await });
    (orders, address)
}

/// Sends so many messages, or without an end. The senders end when they are dropped.
pub(crate) fn send(runtime: &Runtime, orders: &Orders, most: u64) -> JoinSet<()> {
    let mut senders = JoinSet::new();
    for first in 0..SENDERS {
        let orders = orders.clone();
        let send = async move {
            let mut order = first;
            while order < most && orders.send(order).await.is_ok() {
                order += SENDERS;
            }
        };
        senders.spawn_on(send, runtime.handle());
    }
    senders
}

/// Spreads the orders over the lanes.
fn lane_of(order: &u64) -> u64 {
    (order.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % LANES
}

/// Says its address, handles the messages when it reads a line, and ends.
pub(crate) fn count() {
    let runtime = Runtime::new().expect("it starts");
    let (orders, address) = start(&runtime);
    println!("{address}");
    let mut line = String::new();
    stdin().lock().read_line(&mut line).expect("it is read");
    let senders = send(&runtime, &orders, MESSAGES);
    let report = runtime.block_on(async {
        senders.join_all().await;
        orders.drain().await
    });
    assert_eq!(report.done, MESSAGES);
    // What the runtime does at its end is no cost of a message.
    std::process::exit(0);
}
