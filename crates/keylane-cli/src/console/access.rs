//! What a command line says about a console, beside its address.

use std::path::PathBuf;

/// What a console wants, and what it must show.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Access {
    /// A file with the token of the console.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// A file with the authority that has signed the certificate of an https:// address, in PEM.
    /// Without it, the authorities of Mozilla's list are trusted.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) ca: Option<PathBuf>,
}
