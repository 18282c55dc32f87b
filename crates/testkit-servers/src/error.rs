//! Errors of a server of a test.

use std::io;
use std::process::ExitStatus;

/// The reason why a server could not do what the test has asked for.
///
/// No message contains the password of a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A program, or the user that it runs as, is not on this machine.
    #[error("{what} is missing: run `cargo xtask setup`")]
    Missing {
        /// The program or the user.
        what: &'static str,
    },
    /// The operating system has refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// The action.
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A program of the server, such as its client, has failed or has not ended in time.
    #[error("`{program}` has failed with {status}: {output}")]
    Program {
        /// The name of the program.
        program: String,
        /// How it ended; 124 is the status of a program that has not ended in time.
        status: ExitStatus,
        /// The end of its output.
        output: String,
    },
    /// The server has replied to a command with an error.
    #[error("the server has refused: {answer}")]
    Refused {
        /// The error text of the server.
        answer: String,
    },
    /// The server has ended before it was ready.
    #[error("the server has ended with {status} before it was ready; the end of its log:\n{log}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// The server has not answered a query in time.
    #[error(
        "the server has not answered within {seconds} s: see whether the machine is overloaded; \
         the end of its log:\n{log}"
    )]
    NotReady {
        /// How long the test has waited, in seconds.
        seconds: u64,
        /// The end of the log of the server.
        log: String,
    },
    /// The server has not ended in time after it was told to stop, and was killed.
    #[error("the server has not stopped within {seconds} s and was killed: read its log")]
    NotStopped {
        /// How long the test has waited, in seconds.
        seconds: u64,
    },
    /// The operation needs a server that runs.
    #[error("the server does not run: call `start_again` first")]
    NotRunning,
    /// The operation needs a server that does not run.
    #[error("the server runs already: call `stop` or `kill` first")]
    Running,
}

impl ServerError {
    /// Returns a function for `map_err` on an operation of the system.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
