//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::text;

/// Inspects and repairs a keylane inbox, in a directory or in a database.
///
/// In a directory: first stop a service that has the inbox open. Until then every command ends with
/// exit code 2 and changes nothing. A running service does the same through `Inbox::letters()`.
/// Every command, even one that only reads, needs the right to write to the files of the inbox: it
/// takes the lock, and opening repairs the traces of a crash.
///
/// In a database: the services keep running. A redriven letter goes ahead of the messages of its
/// key that have not started.
#[derive(Parser, Debug)]
#[command(version, after_help = AFTER)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Prints one JSON object per line, instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Prints keys, payloads, headers and errors in full, not only their first 64 bytes. With
    /// `--json` they are always in full.
    #[arg(long, global = true)]
    pub(crate) full: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The place of the inbox.
#[derive(clap::Args, Debug)]
pub(crate) struct Place {
    /// The directory of the inbox. Without a directory and a database, the working directory.
    #[arg(short, long, value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// The database of the inbox, instead of a directory: postgres://user:password@host/database,
    /// or mysql://… Other users can see a password in a command line. Instead, set the variable
    /// KEYLANE_INBOX_URL, which is read if there is neither --url nor --dir.
    #[arg(long, value_name = "URL", global = true, conflicts_with = "dir")]
    pub(crate) url: Option<String>,
    /// The prefix of the names of its tables.
    #[arg(long, value_name = "PREFIX", default_value = "keylane_", global = true)]
    pub(crate) prefix: String,
    /// The schema of its tables, if it is not that of the connection.
    #[arg(long, value_name = "SCHEMA", global = true)]
    pub(crate) schema: Option<String>,
}

const AFTER: &str = "\
Bytes that are not plain text are shown, and read in --key, as \\xNN, \\n, \\t, \\\" and \\\\.

Exit codes: 0 done, 1 failed, 2 the inbox is in use, 64 the command line is not valid.

Examples:
  keylane-inbox --dir orders list
  keylane-inbox --dir orders show 4711 --full
  keylane-inbox --dir orders redrive --key user-7
  keylane-inbox --dir orders purge --older-than 30d
  KEYLANE_INBOX_URL=postgres://ops@db/orders keylane-inbox list";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Lists the dead letters, oldest message first, or the waiting messages.
    List {
        /// Lists the waiting messages, instead of the letters.
        #[arg(long)]
        waiting: bool,
        /// Lists only those of this key.
        #[arg(long, value_parser = text::parse)]
        key: Option<text::Bytes>,
        /// Lists only those with a higher sequence.
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: u64,
        /// Lists at most this many.
        #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
        limit: usize,
    },
    /// Shows one letter, or one waiting message, with all details.
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
    /// Removes letters permanently.
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Purge {
        /// Their sequences, as `list` shows them.
        #[arg(value_name = "SEQ", group = "which")]
        sequences: Vec<u64>,
        /// All letters.
        #[arg(long, group = "which")]
        all: bool,
        /// Letters that are older than this: 45s, 30m, 12h, 7d.
        #[arg(long, group = "which", value_name = "TIME", value_parser = text::parse_time)]
        older_than: Option<Duration>,
    },
    /// Shows how much the inbox contains.
    Stats,
    /// Reads everything, and verifies every checksum.
    Check,
    /// Makes the file as small as possible. Not for a database.
    Compact,
    /// Creates the tables of a database, or brings them to the version of this program. A service
    /// does so by itself if it calls `Database::migrate`, which needs the right to create tables.
    Migrate,
}
