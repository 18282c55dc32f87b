//! Why a console does not answer, and what to do.

use std::path::PathBuf;

use keylane_connector::tls::{TlsFailure, TlsNames};
use serde::Deserialize;
use thiserror::Error;

use crate::text::unquoted;

/// How the settings of TLS are called.
const NAMES: TlsNames = TlsNames {
    authority: "--ca FILE",
    identity: "",
    with: "write https:// into the address",
    without: "write http:// into the address",
};

/// Why a console has not done what it was asked for.
#[derive(Error, Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConsoleError {
    #[error("{text:?} is no address of a console: write it as http://127.0.0.1:3000/console")]
    NoAddress { text: String },
    #[error(
        "{host} is another machine, and http:// protects no token: name a proxy with https://, or \
         forward the port, such as `ssh -L 3000:127.0.0.1:3000 {host}`, and name \
         http://127.0.0.1:3000"
    )]
    OtherMachine { host: String },
    #[error("{url}: no TLS: {failure}: {}", advice(*.failure))]
    Tls { url: String, failure: TlsFailure },
    #[error("the file of the authority, {}, cannot be used: {why}", path.display())]
    Authority { path: PathBuf, why: String },
    #[error("an authority is for TLS: name the console with https://, or leave --ca out")]
    NoTls,
    #[error("no answer from {url}: {why}: start the service, or correct the port")]
    NoAnswer { url: String, why: String },
    #[error(
        "{url} answers, but is no console of keylane: name the path at which the console is \
         nested, such as /console"
    )]
    NoConsole { url: String },
    #[error(
        "the console wants a token: write it into a file and name the file with --token-file, or \
         set KEYLANE_CONSOLE_TOKEN"
    )]
    NoToken,
    #[error("the console has refused the token: use the one that the service was started with")]
    WrongToken,
    #[error("the file of the token, {}, cannot be read: {why}", path.display())]
    TokenFile { path: PathBuf, why: String },
    #[error("the console may not do this: allow the action with `Builder::allow` in the service")]
    NotAllowed,
    #[error(
        "the feed of the console cannot be read: {why}: use the version of keylane that the \
         service has"
    )]
    OtherVersion { why: String },
    #[error("the console has refused: {}", words(.0))]
    Refused(Refusal),
}

/// What a console answers instead.
#[derive(Deserialize, Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The name for programs.
    pub(crate) error: String,
    what_to_do: String,
    #[serde(default)]
    why: String,
}

impl ConsoleError {
    /// The error of a status of 400 or more; `None` if a console does not answer so.
    pub(crate) fn of(body: &[u8]) -> Option<Self> {
        let refusal: Refusal = serde_json::from_slice(body).ok()?;
        Some(match &*refusal.error {
            "sign_in" => Self::NoToken,
            "wrong_token" => Self::WrongToken,
            "not_allowed" => Self::NotAllowed,
            // The console is nested at another path, or the service has none.
            "no_such_page" => return None,
            _ => Self::Refused(refusal),
        })
    }

    /// Whether the console has no such letter.
    pub(crate) fn is_unknown_letter(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.error == "unknown_letter")
    }
}

fn advice(failure: TlsFailure) -> String {
    match failure {
        TlsFailure::ClientCertificate => {
            "forward the port of the service, or let the proxy require none: this program has none"
                .to_owned()
        }
        failure => failure.advice(NAMES),
    }
}

/// The texts come from another program, and maybe from its users.
fn words(refusal: &Refusal) -> String {
    let why = match &*refusal.why {
        "" => String::new(),
        why => format!(": {}", unquoted(why, true)),
    };
    let error = unquoted(&refusal.error.replace('_', " "), true);
    format!("{error}{why}: {}", unquoted(&refusal.what_to_do, true))
}
