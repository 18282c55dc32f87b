//! The command line.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Error, Parser, Subcommand};

use crate::order::Plan;

/// Orders in a Kafka topic, handled in order for each customer by more handlers than partitions
///
/// With --demo it starts a broker for itself, produces orders into a topic of 6 partitions and handles
/// them in three worker processes; a fourth one joins, and one is killed with SIGKILL. Once a second it
/// shows how far each partition is and what holds it back, and at the end it proves the order.
///
/// With --brokers, --topic and --group it is one member of a group of yours. Its handlers do nothing but
/// wait, and what they have handled is committed: give it a group of its own.
///
/// Exit status: 0 if the proof holds, 1 if not, 2 if it could not run.
#[derive(Debug, Parser)]
#[command(name = "kafka_orders", subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    /// Show it with a broker for this run alone
    #[arg(long, conflicts_with = "brokers", required_unless_present = "brokers")]
    demo: bool,

    /// How many orders the demo produces, 2,000 a second
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20_000,
        conflicts_with = "brokers"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    orders: u32,

    /// Of how many customers; some of them order much more than others
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200,
        conflicts_with = "brokers"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(6..=100_000))]
    keys: u32,

    /// Which orders: the same seed gives the same ones
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        conflicts_with = "brokers"
    )]
    seed: u64,

    /// How many milliseconds a handler works
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    work: u64,

    /// Your brokers, several with commas between them
    #[arg(long, value_name = "HOST:PORT", requires = "topic", requires = "group")]
    brokers: Option<String>,

    /// The topic that is consumed from your brokers
    #[arg(long, requires = "brokers")]
    topic: Option<String>,

    /// The group that it joins there
    #[arg(long, requires = "brokers")]
    group: Option<String>,

    /// A property of the client, such as security.protocol=ssl; it can be given several times
    #[arg(long, value_name = "NAME=VALUE", requires = "brokers", value_parser = property)]
    property: Vec<(String, String)>,

    #[command(subcommand)]
    role: Option<Hidden>,
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
    Own(Own),
    /// What there is to know comes by the standard input.
    Work,
}

/// The demo.
pub(crate) struct Show {
    pub(crate) plan: Plan,
    pub(crate) work: Duration,
}

/// A cluster of the user. Not `Debug`: a property may be a password.
pub(crate) struct Own {
    pub(crate) brokers: String,
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) work: Duration,
}

impl Arguments {
    pub(crate) fn role(self) -> Result<Role, Error> {
        let work = Duration::from_millis(self.work);
        if let Some(Hidden::Worker) = self.role {
            return Ok(Role::Work);
        }
        let (Some(brokers), Some(topic), Some(group)) = (self.brokers, self.topic, self.group)
        else {
            return Ok(Role::Show(Show {
                plan: Plan {
                    orders: self.orders,
                    customers: self.keys,
                    seed: self.seed,
                },
                work,
            }));
        };
        for (name, value) in [("brokers", &brokers), ("topic", &topic), ("group", &group)] {
            if value.trim().is_empty() {
                let text = format!("--{name} is empty\n");
                return Err(Self::command().error(ErrorKind::ValueValidation, text));
            }
        }
        Ok(Role::Own(Own {
            brokers,
            topic,
            group,
            properties: self.property,
            work,
        }))
    }
}

/// What is wrong is told without the value.
fn property(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
