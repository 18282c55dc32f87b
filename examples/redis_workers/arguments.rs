//! The command line.

use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use testkit_servers::RedisKind;

use crate::order::Plan;

/// Orders in a list and in a stream of Redis, handled in order for each customer by four processes
///
/// It starts a server for itself and four worker processes. Orders go to one list and to one stream of
/// six partitions. One worker is killed with SIGKILL and another one is started; one is stopped with
/// SIGSTOP for longer than its lease, and continued. Once a second it shows who holds what, and at the
/// end it proves that no order is lost and that each customer's orders were handled in their order.
///
/// Exit status: 0 if the proof holds, 1 if not, 2 if it could not run.
#[derive(Debug, Parser)]
#[command(name = "redis_workers", subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    /// Show it, with a server for this run alone
    #[arg(long, required = true)]
    demo: bool,

    /// How many orders go to the list and to the stream together, 2,000 a second
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    orders: u32,

    /// Of how many customers; some of them order much more than others
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(6..=100_000))]
    keys: u32,

    /// Which orders: the same seed gives the same ones
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How many milliseconds a handler works
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    work: u64,

    /// Which server
    #[arg(long, value_enum, default_value_t)]
    server: Server,

    #[command(subcommand)]
    role: Option<Hidden>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Server {
    #[default]
    Redis7,
    Redis8,
    Valkey9,
}

#[derive(Debug, Subcommand)]
enum Hidden {
    /// Handle orders until the standard input ends: a worker of the demo
    #[command(hide = true)]
    Worker,
}

/// What to do.
pub(crate) enum Role {
    Show(Show),
    /// What there is to know comes by the standard input.
    Work,
}

/// The demo.
pub(crate) struct Show {
    pub(crate) plan: Plan,
    pub(crate) work: Duration,
    pub(crate) server: RedisKind,
}

impl Arguments {
    pub(crate) fn role(self) -> Role {
        if let Some(Hidden::Worker) = self.role {
            return Role::Work;
        }
        Role::Show(Show {
            plan: Plan {
                orders: self.orders,
                customers: self.keys,
                seed: self.seed,
            },
            work: Duration::from_millis(self.work),
            server: match self.server {
                Server::Redis7 => RedisKind::Redis7,
                Server::Redis8 => RedisKind::Redis8,
                Server::Valkey9 => RedisKind::Valkey9,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
