//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::console::{Access, Address};
use crate::text;

/// Looks into services that use keylane, and mends what waits: inboxes, dead letters, lanes.
#[derive(Parser, Debug)]
#[command(name = "keylane", version, propagate_version = true, after_help = AFTER)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) program: Program,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Program {
    /// Inspects and repairs an inbox, in a directory or in a database.
    ///
    /// In a directory: first stop a service that has the inbox open. Until then every command ends
    /// with exit code 2 and changes nothing. Every command, even one that only reads, needs the
    /// right to write to the files of the inbox: it takes the lock, and opening repairs the traces
    /// of a crash.
    ///
    /// In a database: the services keep running. A redriven letter goes ahead of the messages of
    /// its key that have not started.
    #[command(after_help = AFTER_INBOX)]
    Inbox(InboxArgs),
    /// Lists, shows, redrives or purges dead letters: of a running service, or of an inbox.
    ///
    /// With --console it asks a service that runs, through the console that the service has nested.
    /// The console must allow `RedriveLetters` and `PurgeLetters`. Without --console it does what
    /// `keylane inbox` does.
    #[command(after_help = AFTER_LETTERS)]
    Letters(LettersArgs),
    /// Shows a running service in the terminal, through its console: rates, lanes, sources.
    Top(TopArgs),
}

// What is to be shown. Its help is the one of its command.
#[derive(clap::Args, Debug)]
pub(crate) struct TopArgs {
    /// The address of the console, such as http://127.0.0.1:3000/console, or that of a proxy in
    /// front of it, such as https://ops.example/console. If it wants a token, name a file with
    /// --token-file, or set KEYLANE_CONSOLE_TOKEN.
    #[arg(long, value_name = "URL")]
    pub(crate) console: Address,
    #[command(flatten)]
    pub(crate) access: Access,
}

// What is to be done with letters. Its help is the one of its command.
#[derive(clap::Args, Debug)]
pub(crate) struct LettersArgs {
    /// The address of the console of a running service, such as http://127.0.0.1:3000/console, or
    /// that of a proxy in front of it, such as https://ops.example/console. If it wants a token,
    /// name a file with --token-file, or set KEYLANE_CONSOLE_TOKEN.
    #[arg(long, value_name = "URL", global = true, conflicts_with_all = ["dir", "url"])]
    pub(crate) console: Option<Address>,
    #[command(flatten)]
    pub(crate) access: Access,
    /// The name of the letters in the console, if it shows several.
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) letters: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) form: Form,
    /// Without a command, lists the letters.
    #[command(subcommand)]
    pub(crate) command: Option<LettersCommand>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum LettersCommand {
    /// Lists the dead letters, in the order of their store.
    List {
        /// Lists only those of this key.
        #[arg(long, value_parser = text::parse)]
        key: Option<text::Bytes>,
        /// Lists only those behind this one.
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// Lists at most this many.
        #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
        limit: usize,
    },
    /// Shows one letter with all details.
    Show {
        /// Its id, as `list` shows it.
        id: String,
    },
    /// Has letters handled again.
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Redrive {
        /// Their ids, as `list` shows them.
        #[arg(value_name = "ID", group = "which")]
        ids: Vec<String>,
        /// All letters that there are now.
        #[arg(long, group = "which")]
        all: bool,
        /// The letters of this key.
        #[arg(long, group = "which", value_parser = text::parse)]
        key: Option<text::Bytes>,
    },
    /// Removes letters permanently.
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Purge {
        /// Their ids, as `list` shows them.
        #[arg(value_name = "ID", group = "which")]
        ids: Vec<String>,
        /// All letters that there are now.
        #[arg(long, group = "which")]
        all: bool,
        /// Letters that are older than this: 45s, 30m, 12h, 7d.
        #[arg(long, group = "which", value_name = "TIME", value_parser = text::parse_time)]
        older_than: Option<Duration>,
    },
}

impl Default for LettersCommand {
    fn default() -> Self {
        Self::List {
            key: None,
            after: None,
            limit: usize::MAX,
        }
    }
}

// What is to be done in an inbox. Its help is the one of its command.
#[derive(clap::Args, Debug)]
pub(crate) struct InboxArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How results are printed.
#[derive(clap::Args, Debug)]
pub(crate) struct Form {
    /// Prints one JSON object per line, instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Prints keys, payloads, headers and errors in full, not only their first 64 bytes. With
    /// `--json` they are always in full.
    #[arg(long, global = true)]
    pub(crate) full: bool,
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
Exit codes: 0 done, 1 failed, 2 the inbox is in use, 64 the command line is not valid.";

const AFTER_INBOX: &str = "\
Bytes that are not plain text are shown, and read in --key, as \\xNN, \\n, \\t, \\\" and \\\\.

Exit codes: 0 done, 1 failed, 2 the inbox is in use, 64 the command line is not valid.

Examples:
  keylane inbox --dir orders list
  keylane inbox --dir orders show 4711 --full
  keylane inbox --dir orders redrive --key user-7
  keylane inbox --dir orders purge --older-than 30d
  KEYLANE_INBOX_URL=postgres://ops@db/orders keylane inbox list";

const AFTER_LETTERS: &str = "\
Through a console, a list has the first 256 bytes of a payload, and the first 256 characters of a
key, an id and a header. `show` has 64 KiB of the payload, and the others in full.

Examples:
  keylane letters --console http://127.0.0.1:3000/console
  keylane letters --console http://127.0.0.1:3000/console show 4711 --full
  keylane letters --console http://127.0.0.1:3000/console redrive --key user-7
  keylane letters --console https://ops.example/console --ca ops.pem --token-file token
  keylane letters --dir orders purge --older-than 30d";

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
