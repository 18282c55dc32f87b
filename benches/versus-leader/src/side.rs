//! The two sides.

use std::process::Command;

use crate::curator::Curator;
use crate::server::Server;
use crate::{Error, SESSION, worker};

/// Whose candidates these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Those of `keylane-leader`.
    Keylane,
    /// Those of Curator's `LeaderSelector`.
    Curator,
}

impl Side {
    /// Both, in the order in which they take turns.
    pub const BOTH: [Self; 2] = [Self::Keylane, Self::Curator];

    /// The name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keylane => "keylane",
            Self::Curator => "Curator",
        }
    }

    /// Returns how many nodes end with their sessions when candidates of so many processes wait for
    /// one that leads.
    pub fn nodes(self, processes: usize, candidates: usize) -> u64 {
        let nodes = match self {
            // Each session has one more, and the leader has two in place of its own.
            Self::Keylane => processes + candidates + 1,
            Self::Curator => candidates,
        };
        nodes as u64
    }

    /// Returns the command of a process with so many candidates.
    pub fn command(
        self,
        curator: &Curator,
        server: &Server,
        election: &str,
        id: &str,
        candidates: usize,
    ) -> Result<Command, Error> {
        let mut command = match self {
            Self::Keylane => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg(worker::SUBCOMMAND);
                command
            }
            Self::Curator => curator.command(),
        };
        command
            .arg(server.hosts())
            .arg(format!("/{election}"))
            .arg(id)
            .arg(candidates.to_string())
            .arg(SESSION.as_millis().to_string());
        Ok(command)
    }
}
