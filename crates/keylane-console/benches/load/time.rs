//! Messages per second of processor time.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::{ROUNDS, service, viewers};

const ROUND: Duration = Duration::from_secs(4);

/// Those without viewers, and those with them.
pub(crate) fn rounds() -> [Vec<f64>; 2] {
    let runtime = Runtime::new().expect("it starts");
    let (orders, address) = service::start(&runtime);
    let done = || orders.stats().done;
    let mut found = [Vec::new(), Vec::new()];
    let _senders = service::send(&runtime, &orders, u64::MAX);
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
    runtime.shutdown_background();
    found
}

fn start_viewers(address: SocketAddr) -> Child {
    let program = std::env::current_exe().expect("it has a path");
    let mut viewers = Command::new(program)
        .args([viewers::ARGUMENT, &address.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = String::new();
    let output = viewers.stdout.take().expect("it is piped");
    BufReader::new(output)
        .read_line(&mut said)
        .expect("it says so");
    assert_eq!(said.trim(), viewers::SAID);
    viewers
}

/// User and system time of this process, in seconds.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let (_, after_name) = stat.rsplit_once(')').expect("it has a name");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |field: usize| fields[field].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}
