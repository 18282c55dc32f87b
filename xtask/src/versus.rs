//! `cargo xtask versus`: compares keylane with its rivals.

use crate::Error;
use crate::results::{Form, Save};
use crate::workspace::cargo;

/// The comparison with the rivals, a workspace of its own.
pub(crate) const VERSUS: &str = "--manifest-path=benches/versus/Cargo.toml";

/// The one on PostgreSQL, another one.
pub(crate) const VERSUS_SQL: &str = "--manifest-path=benches/versus-sql/Cargo.toml";

/// The one on Kafka, another one.
pub(crate) const VERSUS_KAFKA: &str = "--manifest-path=benches/versus-kafka/Cargo.toml";

/// The one on Redis, another one.
pub(crate) const VERSUS_REDIS: &str = "--manifest-path=benches/versus-redis/Cargo.toml";

/// The one on ZooKeeper, another one.
pub(crate) const VERSUS_LEADER: &str = "--manifest-path=benches/versus-leader/Cargo.toml";

/// Compare keylane with its rivals in one run (results in target/versus)
/// The rivals are a workspace of their own, built on first use. Arguments after `--` go to the
/// comparison, for example `-- --quick` or `-- --help`; `--save=pull -- --only pull` saves the
/// tables of a part.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Compare keylane-sql with other queues on PostgreSQL instead
    #[arg(long)]
    sql: bool,
    /// Compare keylane-kafka with other ways to consume a topic instead (needs Java and Maven)
    #[arg(long, conflicts_with = "sql")]
    kafka: bool,
    /// Compare keylane-redis with other ways to consume Redis instead
    #[arg(long, conflicts_with_all = ["sql", "kafka"])]
    redis: bool,
    /// Compare keylane-leader on ZooKeeper with Apache Curator instead (needs Java and Maven)
    #[arg(long, conflicts_with_all = ["sql", "kafka", "redis"])]
    leader: bool,
    #[command(flatten)]
    save: Save,
    /// Arguments of the comparison
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    versus: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let (arm, manifest) = match (args.sql, args.kafka, args.redis, args.leader) {
        (true, ..) => ("sql", VERSUS_SQL),
        (_, true, ..) => ("kafka", VERSUS_KAFKA),
        (_, _, true, _) => ("redis", VERSUS_REDIS),
        (.., true) => ("leader", VERSUS_LEADER),
        _ => ("dispatch", VERSUS),
    };
    let mut versus = cargo(["run", "--release", manifest, "--"]);
    versus.args(&args.versus);
    if args.save.run(arm, versus, Form::Markdown)?.success() {
        Ok(())
    } else {
        Err("the comparison has failed".into())
    }
}
