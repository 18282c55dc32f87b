//! Fetches the servers that no package of the system has, if they are not there yet, for the tests.
//! `cargo xtask setup` runs this.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use testkit_servers::{RedisKind, ServerError, kafka, redis, zookeeper};

fn main() -> ExitCode {
    match fetch() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn fetch() -> Result<(), ServerError> {
    let name = format!("Kafka {}", kafka::VERSION);
    with_maven(&name, |progress| kafka::fetch(progress))?;
    let name = format!("ZooKeeper {}", zookeeper::VERSION);
    with_maven(&name, |progress| zookeeper::fetch(progress))?;
    for kind in RedisKind::ALL {
        present(kind, redis::fetch(kind)?);
    }
    Ok(())
}

fn present(name: impl Display, path: PathBuf) {
    println!("{name}: present in {}", path.display());
}

/// Calls `fetch` and shows a count of the files that Maven brings: there are many.
fn with_maven(
    name: &str,
    fetch: impl FnOnce(&mut dyn FnMut(&str)) -> Result<PathBuf, ServerError>,
) -> Result<(), ServerError> {
    let is_terminal = io::stderr().is_terminal();
    let mut files = 0;
    let fetched = fetch(&mut |line| {
        if !line.contains("Downloaded from") {
            return;
        }
        files += 1;
        // On a terminal one line that is written again and again.
        if is_terminal {
            eprint!("\r{name}: fetching, {files} files");
            let _ = io::stderr().flush();
        } else if files == 1 {
            eprintln!("{name}: fetching");
        }
    });
    if is_terminal && files > 0 {
        eprintln!();
    }
    present(name, fetched?);
    Ok(())
}
