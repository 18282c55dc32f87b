//! Instructions of a message, and of a second of viewers.
//!
//! The service runs under valgrind, some fifty times slower than without it, and handles the same
//! messages with viewers as without them. The feeds look once a second all the same. So the
//! difference is divided by the number of events that a viewer had: that is what viewers take in a
//! second, however slow the service is.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use crate::viewers::{self, Viewer};
use crate::{ROUNDS, service};

/// Those of a message, and those of a second of viewers.
pub(crate) fn rounds() -> [Vec<f64>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        let (mut without, mut with) = (0.0, (0.0, 0.0));
        for which in [round % 2, 1 - round % 2] {
            match which {
                0 => without = counted(false).0,
                _ => with = counted(true),
            }
        }
        let (with, seconds) = with;
        found[0].push(without / service::MESSAGES as f64);
        found[1].push((with - without) / seconds);
    }
    found
}

/// The instructions of the service, and how many events each viewer had.
fn counted(is_viewed: bool) -> (f64, f64) {
    let program = std::env::current_exe().expect("it has a path");
    let mut service = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .arg(service::ARGUMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("valgrind is installed: `cargo xtask setup` does that");
    let mut address = String::new();
    let output = service.stdout.take().expect("it is piped");
    BufReader::new(output)
        .read_line(&mut address)
        .expect("it says its address");
    let viewers = match is_viewed {
        true => viewers::come(address.trim().parse().expect("an address")),
        false => Vec::new(),
    };
    let input = service.stdin.as_mut().expect("it is piped");
    input.write_all(b"\n").expect("it reads");
    let count = |mut viewer: Viewer| {
        std::thread::spawn(move || {
            // It has had one.
            let mut events = 1.0;
            while viewers::has_event(&mut viewer) {
                events += 1.0;
            }
            events
        })
    };
    let readers: Vec<_> = viewers.into_iter().map(count).collect();
    let instructions = collected(&mut service);
    let events = readers.into_iter().map(|reader| reader.join());
    let events: f64 = events.map(|events| events.expect("it reads")).sum();
    (instructions, events / viewers::COUNT as f64)
}

/// What valgrind has counted when the service has ended.
fn collected(service: &mut Child) -> f64 {
    let mut said = String::new();
    let errors = service.stderr.as_mut().expect("it is piped");
    errors.read_to_string(&mut said).expect("it is text");
    assert!(service.wait().expect("it ends").success(), "{said}");
    let line = said.lines().find(|line| line.contains("Collected"));
    let count = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("valgrind has counted nothing: {said}"))
}
