//! What viewers cost: messages per second of processor time, of a service with 10,000 busy lanes,
//! without viewers and with 50 of them. `cargo bench -p keylane-console --bench load`.
//!
//! The viewers are another process. Rounds without and with them take turns, and medians are
//! compared: what else the machine does hits both. It fails if viewers take more than 2 %.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use keylane::Dispatcher;
use keylane_console::Console;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const LANES: u64 = 10_000;
const VIEWERS: usize = 50;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_secs(4);
const SENDERS: u64 = 4;

/// Most of the throughput that viewers may take, in percent.
const MOST: f64 = 2.0;

/// The viewers read for so long, longer than a round.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|it| it == "--viewers") {
        return view(arguments[at + 1].parse().expect("an address"));
    }
    // `cargo test --benches` only looks whether it starts.
    if !arguments.iter().any(|it| it == "--bench") {
        return;
    }
    let without_and_with = rounds();
    let [without, with] = without_and_with.map(median);
    let cost = 100.0 * (1.0 - with / without);
    println!("messages per second of processor time, medians of {ROUNDS} rounds:");
    println!("  without viewers    {without:9.0}");
    println!("  with {VIEWERS} viewers    {with:9.0}");
    println!("  they take {cost:.2} %");
    let [rate, busy] = [without, with].map(|each| 1e9 / each);
    println!("a message takes {rate:.0} and {busy:.0} ns of processor time");
    if cost > MOST {
        std::process::exit(1);
    }
}

fn rounds() -> [Vec<f64>; 2] {
    let runtime = tokio::runtime::Runtime::new().expect("it starts");
    let entered = runtime.enter();
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
    drop(entered);
    let done = || orders.stats().done;
    let mut found = [Vec::new(), Vec::new()];
    let mut senders = JoinSet::new();
    for first in 0..SENDERS {
        let orders = orders.clone();
        let send = async move {
            let mut order = first;
            while orders.send(order).await.is_ok() {
                order += SENDERS;
            }
        };
        senders.spawn_on(send, runtime.handle());
    }
    std::thread::sleep(ROUND);
    for round in 0..ROUNDS {
        for which in [round % 2, 1 - round % 2] {
            let viewers = (which == 1).then(|| start_viewers(address));
            // They have come, and have had an event.
            std::thread::sleep(Duration::from_secs(2));
            let (messages, time) = (done(), processor_time());
            std::thread::sleep(ROUND);
            let each = (done() - messages) as f64 / (processor_time() - time);
            found[which].push(each);
            if let Some(mut viewers) = viewers {
                viewers.kill().expect("they run");
                viewers.wait().expect("they end");
            }
        }
    }
    senders.abort_all();
    runtime.shutdown_background();
    found
}

/// Spreads the orders over the lanes.
fn lane_of(order: &u64) -> u64 {
    (order.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % LANES
}

fn start_viewers(address: SocketAddr) -> Child {
    let program = std::env::current_exe().expect("it has a path");
    let mut viewers = Command::new(program)
        .args(["--viewers", &address.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = String::new();
    let output = viewers.stdout.take().expect("it is piped");
    BufReader::new(output)
        .read_line(&mut said)
        .expect("it says so");
    assert_eq!(said, "all have had an event\n");
    viewers
}

/// Half of them see the overview, and half of them the lanes.
fn view(address: SocketAddr) {
    let streams = (0..VIEWERS).map(|n| {
        let path = ["/feed", "/lanes?dispatcher=orders"][n % 2];
        let mut stream = TcpStream::connect(address).expect("it listens");
        let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        BufReader::new(stream)
    });
    let mut streams: Vec<_> = streams.collect();
    for (at, stream) in streams.iter_mut().enumerate() {
        until_event(stream, at);
    }
    println!("all have had an event");
    let end = Instant::now() + PATIENCE;
    let readers = streams.into_iter().enumerate().map(|(at, mut stream)| {
        std::thread::spawn(move || {
            while Instant::now() < end {
                until_event(&mut stream, at);
            }
        })
    });
    for reader in readers.collect::<Vec<_>>() {
        reader.join().expect("it reads to the end");
    }
}

fn until_event(stream: &mut BufReader<TcpStream>, at: usize) {
    let mut line = Vec::new();
    while !line.starts_with(b"data: ") {
        line.clear();
        let read = stream.read_until(b'\n', &mut line);
        assert!(matches!(read, Ok(1..)), "the stream {at} has ended");
    }
}

/// User and system time of this process, in seconds.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let (_, after_name) = stat.rsplit_once(')').expect("it has a name");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |field: usize| fields[field].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
