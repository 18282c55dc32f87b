//! Compares the stores an inbox can be built on, and prints markdown.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use versus::number::number;
use versus::stores::inbox::{Inbox, Layout};
use versus::stores::measure::{Case, Outcome};
use versus::stores::message::Traffic;
use versus::stores::process;
use versus::stores::store::{Kind, Result, Settings};

/// Compares the stores an inbox can be built on: a process per measurement, the stores in turns.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    measurement: Measurement,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Measurement {
    /// Messages accepted, by the size of the group.
    Append,
    /// Messages read in order of their lanes, and the attempt of each lane marked.
    Claim,
    /// Accepted, begun and done in the same commit, at constant depth.
    Steady,
    /// A life: load, open, kill and open again, drain, compact.
    Life,
    /// One measurement in this process; prints JSON.
    #[command(subcommand)]
    One(One),
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum One {
    /// Accepts `--messages`.
    Load,
    /// Opens, and reads the first messages.
    Open,
    /// Opens, and counts all messages.
    Count,
    /// Reads everything and has it done.
    Drain,
    /// Reads `--messages` and marks the attempts.
    Claim,
    /// Passes `--messages` through at `--depth`.
    Steady,
}

#[derive(Args, Clone, Debug)]
struct Options {
    /// The stores.
    #[arg(
        long,
        global = true,
        value_delimiter = ',',
        default_value = "redb,redb-quick,fjall"
    )]
    store: Vec<Kind>,
    /// Messages.
    #[arg(long, global = true, default_value_t = 1_000_000)]
    messages: u64,
    /// Keys.
    #[arg(long, global = true, default_value_t = 10_000)]
    keys: u64,
    /// Each message has a key of its own.
    #[arg(long, global = true)]
    unique: bool,
    /// Bytes of a message: key, payload and headers.
    #[arg(long, global = true, default_value_t = 200)]
    bytes: usize,
    /// Messages of one commit.
    #[arg(long, global = true, value_delimiter = ',', default_value = "256")]
    group: Vec<u64>,
    /// The most messages read of one lane at once.
    #[arg(long, global = true, default_value_t = 16)]
    window: usize,
    /// Messages that wait, in `steady`.
    #[arg(long, global = true, default_value_t = 100_000)]
    depth: u64,
    /// The tables.
    #[arg(long, global = true, value_enum, default_value = "lean")]
    layout: Layout,
    /// How much of the index is kept in memory, in the layout `tail`.
    #[arg(long, global = true, default_value_t = 65_536)]
    tail: usize,
    /// For how many messages ids are kept; 0 for not at all.
    #[arg(long, global = true, default_value_t = 0)]
    dedupe: u64,
    /// MiB of a store's cache.
    #[arg(long, global = true, default_value_t = 64)]
    cache: u64,
    /// MiB of a memtable of fjall.
    #[arg(long, global = true, default_value_t = 16)]
    memtable: u64,
    /// fjall removes messages by weak tombstones.
    #[arg(long, global = true)]
    weak: bool,
    /// Every how many messages one is never done, in `life`; 0 for none.
    #[arg(long, global = true, default_value_t = 0)]
    leave: u64,
    /// How often.
    #[arg(long, global = true, default_value_t = 1)]
    rounds: u64,
    /// The first sequence.
    #[arg(long, global = true, default_value_t = 1)]
    from: u64,
    /// Seconds after which a measurement stops.
    #[arg(long, global = true, default_value_t = 600)]
    limit: u64,
    /// Where the files are; each store in a directory of its own, removed afterwards.
    #[arg(long, global = true, default_value = "target/stores")]
    directory: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result {
    let options = &arguments.options;
    match arguments.measurement {
        Measurement::One(one) => options.one(one),
        Measurement::Append => options.append(),
        Measurement::Claim => options.claim(),
        Measurement::Steady => options.steady(),
        Measurement::Life => options.life(),
    }
}

impl Options {
    fn one(&self, one: One) -> Result {
        let (Some(&kind), Some(&group)) = (self.store.first(), self.group.first()) else {
            return Err("one store and one group".into());
        };
        let case = Case {
            kind,
            settings: Settings {
                cache: self.cache << 20,
                memtable: self.memtable << 20,
                weak: self.weak,
            },
            directory: self.directory.clone(),
            inbox: Inbox::new(self.layout, self.dedupe > 0, self.tail),
            traffic: Traffic {
                keys: self.keys,
                bytes: self.bytes,
                unique: self.unique,
            },
            group,
            window: self.window,
            retention: self.dedupe,
            leave: self.leave,
            limit: Duration::from_secs(self.limit),
        };
        let outcome = match one {
            One::Load => case.load(self.from, self.messages)?,
            One::Open => case.reopen(false)?,
            One::Count => case.reopen(true)?,
            One::Drain => case.drain()?,
            One::Claim => case.claim(self.messages)?,
            One::Steady => case.steady(self.depth, self.messages)?,
        };
        println!("{}", serde_json::to_string(&outcome)?);
        Ok(())
    }

    fn append(&self) -> Result {
        heading(
            "store | per commit | bytes | messages/s | commit p50 | p99 | max | written per message byte | memory",
        );
        for _ in 0..self.rounds {
            for &group in &self.group {
                for &kind in &self.store {
                    let directory = self.fresh(kind)?;
                    // A commit of one message takes as long as the disk: fewer of them will do.
                    let messages = self.messages.min(group * 4_000);
                    let outcome = self.child("load", kind, group, &directory, messages, 1)?;
                    row(&[
                        outcome.store.clone(),
                        group.to_string(),
                        self.bytes.to_string(),
                        number(outcome.rate()),
                        micros(outcome.p50),
                        micros(outcome.p99),
                        micros(outcome.max),
                        number(
                            outcome.written as f64 / (outcome.messages * self.bytes as u64) as f64,
                        ),
                        mib(outcome.memory),
                    ]);
                    fs::remove_dir_all(&directory)?;
                }
            }
        }
        Ok(())
    }

    fn claim(&self) -> Result {
        heading(
            "store | keys | stored | per commit | messages/s | reading | commit p50 | p99 | memory",
        );
        let directories = self.loaded()?;
        for _ in 0..self.rounds {
            for &group in &self.group {
                for (kind, directory) in &directories {
                    let messages = self.messages.min(100_000);
                    let outcome = self.child("claim", *kind, group, directory, messages, 1)?;
                    row(&[
                        outcome.store.clone(),
                        self.keys.to_string(),
                        self.messages.to_string(),
                        group.to_string(),
                        number(outcome.rate()),
                        share(outcome.claiming, outcome.seconds),
                        micros(outcome.p50),
                        micros(outcome.p99),
                        mib(outcome.memory),
                    ]);
                }
            }
        }
        for (_, directory) in directories {
            fs::remove_dir_all(directory)?;
        }
        Ok(())
    }

    fn steady(&self) -> Result {
        heading(
            "store | per commit | keys | bytes | passed | left | messages/s | reading | commit p50 | p99 | max | largest MiB | closed | compacted | live | largest/live | closed/live | memory | written per message byte",
        );
        for _ in 0..self.rounds {
            for &group in &self.group {
                for &kind in &self.store {
                    let directory = self.fresh(kind)?;
                    let outcome =
                        self.child("steady", kind, group, &directory, self.messages, 1)?;
                    row(&[
                        outcome.store.clone(),
                        group.to_string(),
                        self.keys.to_string(),
                        self.bytes.to_string(),
                        cut(&outcome),
                        outcome.left.to_string(),
                        number(outcome.rate()),
                        share(outcome.claiming, outcome.seconds),
                        micros(outcome.p50),
                        micros(outcome.p99),
                        micros(outcome.max),
                        mib(outcome.largest),
                        mib(outcome.closed.blocks),
                        mib(outcome.compacted.blocks),
                        mib(outcome.live),
                        times(outcome.largest, outcome.live),
                        times(outcome.closed.blocks, outcome.live),
                        mib(outcome.memory),
                        number(
                            outcome.written as f64 / (outcome.messages * self.bytes as u64) as f64,
                        ),
                    ]);
                    eprintln!("{}: {}", outcome.store, outcome.says);
                    fs::remove_dir_all(&directory)?;
                }
            }
        }
        Ok(())
    }

    fn life(&self) -> Result {
        let group = *self.group.first().ok_or("a group")?;
        heading(
            "store | keys | bytes | step | messages | seconds | messages/s | commit p50 | p99 | max | reading | open | close | disk | closed | compacted (in) | live | disk/live | memory | written per message byte",
        );
        for &kind in &self.store {
            let directory = self.fresh(kind)?;
            let load = self.child("load", kind, group, &directory, self.messages, 1)?;
            self.step("load", &load);
            let stored = load.messages;
            let open = self.child("open", kind, group, &directory, self.messages, 1)?;
            self.step("open after close", &open);
            let killed = self.kill(kind, group, &directory, stored + 1)?;
            let open = self.child("open", kind, group, &directory, self.messages, 1)?;
            self.step(&format!("open after kill -9 ({killed} MiB)"), &open);
            let count = self.child("count", kind, group, &directory, self.messages, 1)?;
            self.step("count", &count);
            if count.messages < stored {
                return Err(format!("{}: {} of {stored}", kind.name(), count.messages).into());
            }
            let drain = self.child("drain", kind, group, &directory, self.messages, 1)?;
            self.step("drain", &drain);
            let open = self.child("open", kind, group, &directory, self.messages, 1)?;
            self.step("open when empty", &open);
            fs::remove_dir_all(&directory)?;
        }
        Ok(())
    }

    /// A store per directory, loaded.
    fn loaded(&self) -> Result<Vec<(Kind, PathBuf)>> {
        let mut directories = Vec::new();
        for &kind in &self.store {
            let directory = self.fresh(kind)?;
            self.child("load", kind, 1024, &directory, self.messages, 1)?;
            directories.push((kind, directory));
        }
        Ok(directories)
    }

    fn fresh(&self, kind: Kind) -> Result<PathBuf> {
        let directory = self.directory.join(kind.name());
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    fn step(&self, step: &str, outcome: &Outcome) {
        row(&[
            outcome.store.clone(),
            self.keys.to_string(),
            self.bytes.to_string(),
            step.to_owned(),
            cut(outcome),
            number(outcome.seconds),
            if outcome.messages > 0 {
                number(outcome.rate())
            } else {
                String::new()
            },
            micros(outcome.p50),
            micros(outcome.p99),
            micros(outcome.max),
            format!("{} s", number(outcome.claiming)),
            format!("{} s", number(outcome.opening)),
            format!("{} s", number(outcome.closing)),
            mib(outcome.size.blocks),
            mib(outcome.closed.blocks),
            format!(
                "{} ({} s)",
                mib(outcome.compacted.blocks),
                number(outcome.compacting)
            ),
            mib(outcome.live),
            times(outcome.closed.blocks, outcome.live),
            mib(outcome.memory),
            number(outcome.written as f64 / (outcome.messages * self.bytes as u64) as f64),
        ]);
        eprintln!("{} {step}: {}", outcome.store, outcome.says);
    }

    /// Has a process go on loading, and kills it in the middle. Says how much was on the disk then.
    fn kill(&self, kind: Kind, group: u64, directory: &Path, from: u64) -> Result<u64> {
        let mut child = self
            .command("load", kind, group, directory, u64::MAX / 2, from)?
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().ok_or("the pipe was asked for")?;
        for line in BufReader::new(stderr).lines() {
            if line? == "open" {
                break;
            }
        }
        std::thread::sleep(Duration::from_secs(5));
        child.kill()?;
        child.wait()?;
        Ok(process::size(directory).blocks >> 20)
    }

    fn child(
        &self,
        one: &str,
        kind: Kind,
        group: u64,
        directory: &Path,
        messages: u64,
        from: u64,
    ) -> Result<Outcome> {
        let output = self
            .command(one, kind, group, directory, messages, from)?
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("{one} {}: {}", kind.name(), output.status).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn command(
        &self,
        one: &str,
        kind: Kind,
        group: u64,
        directory: &Path,
        messages: u64,
        from: u64,
    ) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["one", one, "--store", kind.name()]);
        command.arg("--directory").arg(directory);
        let layout = match self.layout {
            Layout::Counted => "counted",
            Layout::Lean => "lean",
            Layout::Log => "log",
            Layout::Tail => "tail",
        };
        command.args(["--layout", layout]);
        for (name, value) in [
            ("--messages", messages),
            ("--from", from),
            ("--keys", self.keys),
            ("--bytes", self.bytes as u64),
            ("--group", group),
            ("--window", self.window as u64),
            ("--depth", self.depth),
            ("--dedupe", self.dedupe),
            ("--tail", self.tail as u64),
            ("--leave", self.leave),
            ("--cache", self.cache),
            ("--memtable", self.memtable),
            ("--limit", self.limit),
        ] {
            command.arg(name).arg(value.to_string());
        }
        if self.unique {
            command.arg("--unique");
        }
        if self.weak {
            command.arg("--weak");
        }
        Ok(command)
    }
}

fn heading(columns: &str) {
    println!("| {columns} |");
    println!("|{}", " --- |".repeat(columns.split('|').count()));
}

fn row(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

fn cut(outcome: &Outcome) -> String {
    let mark = if outcome.cut { "~" } else { "" };
    format!("{mark}{}", outcome.messages)
}

fn micros(nanoseconds: u64) -> String {
    format!("{} µs", number((nanoseconds as f64 / 1_000.0).round()))
}

fn mib(bytes: u64) -> String {
    number((bytes as f64 / f64::from(1 << 20) * 10.0).round() / 10.0)
}

fn times(bytes: u64, live: u64) -> String {
    if live == 0 {
        return String::new();
    }
    number(bytes as f64 / live as f64)
}

fn share(part: f64, whole: f64) -> String {
    format!("{:.0} %", 100.0 * part / whole)
}
