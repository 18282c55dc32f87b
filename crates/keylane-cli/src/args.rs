//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::text;

/// Looks into a keylane inbox, in a directory or in a database, and mends it.
///
/// In a directory: a service that has the inbox open must be stopped first. Until then every
/// command ends with exit code 2 and changes nothing. A running service does the same through
/// `Inbox::letters()`. Every command needs the right to write to the files of the inbox, those as
/// well that only look: they take its lock, and opening it repairs what a crash has left.
///
/// In a database: the services go on meanwhile. What is redriven goes ahead of the messages of its
/// key that have not started.
#[derive(Parser, Debug)]
#[command(version, after_help = AFTER)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) place: Place,
    /// One JSON object a line, instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Keys, payloads, headers and errors as a whole, not only their first 64 bytes. With `--json`
    /// they are never cut.
    #[arg(long, global = true)]
    pub(crate) full: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the inbox is.
#[derive(clap::Args, Debug)]
pub(crate) struct Place {
    /// The directory of the inbox. Without it and without a database: where the command is given.
    #[arg(short, long, value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// The database of the inbox, instead of a directory: postgres://user:password@host/database,
    /// or mysql://… A password in a command line can be seen by others: better in the variable
    /// KEYLANE_INBOX_URL, which is read where there is neither --url nor --dir.
    #[arg(long, value_name = "URL", global = true, conflicts_with = "dir")]
    pub(crate) url: Option<String>,
    /// What the names of its tables begin with.
    #[arg(long, value_name = "PREFIX", default_value = "keylane_", global = true)]
    pub(crate) prefix: String,
    /// The schema of its tables, if it is not the one of the connection.
    #[arg(long, value_name = "SCHEMA", global = true)]
    pub(crate) schema: Option<String>,
}

const AFTER: &str = "\
Bytes that are not plain text are shown, and read in --key, as \\xNN, \\n, \\t, \\\" and \\\\.

Exit codes: 0 done, 1 failed, 2 the inbox is running, 64 the command line makes no sense.

Examples:
  keylane-inbox --dir orders list
  keylane-inbox --dir orders show 4711 --full
  keylane-inbox --dir orders redrive --key user-7
  keylane-inbox --dir orders purge --older-than 30d
  KEYLANE_INBOX_URL=postgres://ops@db/orders keylane-inbox list";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Lists the dead letters, oldest message first; or the messages that wait.
    List {
        /// The messages that wait, instead of the letters.
        #[arg(long)]
        waiting: bool,
        /// Only those of this key.
        #[arg(long, value_parser = text::parse)]
        key: Option<text::Bytes>,
        /// Only those with a higher sequence.
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: u64,
        /// At most so many.
        #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
        limit: usize,
    },
    /// Shows one letter, or one message that waits, with all that is known of it.
    Show {
        /// Its sequence, as `list` shows it.
        #[arg(value_name = "SEQ")]
        sequence: u64,
    },
    /// Puts letters back among the waiting messages, ahead of the others of their keys.
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Redrive {
        /// Their sequences, as `list` shows them.
        #[arg(value_name = "SEQ", group = "which")]
        sequences: Vec<u64>,
        /// All letters.
        #[arg(long, group = "which")]
        all: bool,
        /// The letters of this key.
        #[arg(long, group = "which", value_parser = text::parse)]
        key: Option<text::Bytes>,
    },
    /// Removes letters for ever.
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Purge {
        /// Their sequences, as `list` shows them.
        #[arg(value_name = "SEQ", group = "which")]
        sequences: Vec<u64>,
        /// All letters.
        #[arg(long, group = "which")]
        all: bool,
        /// Those that became letters longer ago: 45s, 30m, 12h, 7d.
        #[arg(long, group = "which", value_name = "TIME", value_parser = text::parse_time)]
        older_than: Option<Duration>,
    },
    /// Shows how much there is.
    Stats,
    /// Reads everything, and verifies every checksum.
    Check,
    /// Makes the file as short as it can be. Not in a database.
    Compact,
    /// Makes the tables of a database, or brings them to the version of this program. A service
    /// does so by itself if it calls `Database::migrate`, which needs the right to make tables.
    Migrate,
}
