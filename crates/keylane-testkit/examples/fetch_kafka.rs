//! Fetches Kafka for the tests, if it is not there yet. `cargo xtask setup` runs this.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use keylane_testkit::servers::kafka::{VERSION, fetch};

fn main() -> ExitCode {
    let is_terminal = io::stderr().is_terminal();
    let mut files = 0;
    let fetched = fetch(|line| {
        if !line.contains("Downloaded from") {
            return;
        }
        files += 1;
        // On a terminal one line that is written again and again.
        if is_terminal {
            eprint!("\rKafka {VERSION}: fetching, {files} files");
            let _ = io::stderr().flush();
        } else if files == 1 {
            eprintln!("Kafka {VERSION}: fetching");
        }
    });
    if is_terminal && files > 0 {
        eprintln!();
    }
    match fetched {
        Ok(folder) => {
            println!("Kafka {VERSION}: present in {}", folder.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
