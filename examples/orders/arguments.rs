//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// A service that loses no order; without arguments it shows itself, in under a minute
///
/// It starts a worker that serves, sends it the orders of a few thousand users, kills it in the middle,
/// starts it again, and says what was lost, repeated and reordered.
#[derive(Debug, Parser)]
#[command(name = "orders")]
pub(crate) struct Arguments {
    /// Serve until Ctrl-C; together with --load, show it first and leave the console up
    #[arg(long)]
    serve: bool,

    /// Show it with so many orders [default: 60000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    load: Option<u32>,

    /// Show it, and exit with 1 if anything is lost, reordered, or repeated that must not be
    #[arg(long, conflicts_with = "serve")]
    check: bool,

    /// Where the orders are kept [default: orders-data to serve, and a temporary one to show it]
    #[arg(long)]
    dir: Option<PathBuf>,

    /// Where to listen on 127.0.0.1; 0 takes any free port [default: 3000 to serve, and 0 to show it]
    #[arg(long)]
    port: Option<u16>,

    /// Serve until the standard input ends: the worker of the demo
    #[arg(long, hide = true, conflicts_with_all = ["serve", "load", "check"], requires = "dir")]
    worker: bool,
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Role {
    /// Serve, for people.
    Serve(Place),
    /// Serve, for the demo.
    Work(Place),
    /// Show what it does.
    Show(Show),
}

/// Where a service keeps its orders, and where it listens.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) port: u16,
}

#[derive(Debug)]
pub(crate) struct Show {
    pub(crate) orders: u32,
    /// `None`: a temporary one.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) port: u16,
    /// Whether the exit status is the verdict.
    pub(crate) check: bool,
    /// Whether the console stays up until Ctrl-C.
    pub(crate) stay: bool,
}

/// How many orders show something, and are through in half a minute on a slow disk.
const ORDERS: u32 = 60_000;

impl Arguments {
    pub(crate) fn role(self) -> Role {
        let place = |port: u16| Place {
            directory: self.dir.clone().unwrap_or_else(|| "orders-data".into()),
            port: self.port.unwrap_or(port),
        };
        if self.worker {
            return Role::Work(place(0));
        }
        if self.serve && self.load.is_none() {
            return Role::Serve(place(3_000));
        }
        Role::Show(Show {
            orders: self.load.unwrap_or(ORDERS),
            port: self.port.unwrap_or(if self.serve { 3_000 } else { 0 }),
            directory: self.dir,
            check: self.check,
            stay: self.serve,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(line: &str) -> Role {
        Arguments::parse_from(line.split(' ')).role()
    }

    #[test]
    fn it_shows_itself_unless_it_is_told_to_serve() {
        assert!(matches!(role("orders"), Role::Show(show) if !show.stay && !show.check));
        assert!(matches!(role("orders --check"), Role::Show(show) if show.check));
        assert!(matches!(role("orders --serve"), Role::Serve(place) if place.port == 3_000));
        let both = role("orders --serve --load 500");
        assert!(matches!(both, Role::Show(show) if show.stay && show.orders == 500));
        let worker = role("orders --worker --dir d");
        assert!(matches!(worker, Role::Work(place) if place.port == 0));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "--load 0",
            "--port 70000",
            "--serve --check",
            "--worker",
            "x",
        ] {
            let words = format!("orders {line}");
            assert!(
                Arguments::try_parse_from(words.split(' ')).is_err(),
                "{line}"
            );
        }
    }
}
