//! Runs `versus-memory`, the program under the counting allocator: a process per measurement.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::de::DeserializeOwned;

use crate::footprint::Footprint;
use crate::idle::Idle;
use crate::rate_keys::RateKeys;

const NAME: &str = "versus-memory";

/// The program.
#[derive(Debug)]
pub struct Counter(PathBuf);

impl Counter {
    /// Builds it beside this program, so that both are of one source.
    ///
    /// # Errors
    ///
    /// If it does not build.
    pub fn build() -> Result<Self, Box<dyn Error>> {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let program = std::env::current_exe()?;
        // As in `target/release/versus`.
        let target = program.ancestors().nth(2).unwrap_or(Path::new("target"));
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .args(["build", "--quiet", "--bin", NAME])
            .args(["--manifest-path", manifest])
            .arg("--target-dir")
            .arg(target);
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        if !command.status()?.success() {
            return Err(format!("{NAME} does not build").into());
        }
        let beside = program.with_file_name(NAME);
        Ok(Self(beside.with_extension(std::env::consts::EXE_EXTENSION)))
    }

    /// Counts one contender.
    ///
    /// # Errors
    ///
    /// If the program fails.
    pub fn footprint(&self, contender: &str, quick: bool) -> Result<Footprint, Box<dyn Error>> {
        let mut command = self.command("contender", quick);
        command.arg(contender);
        answer(command)
    }

    /// Counts what keylane remembers of keys under a rate.
    ///
    /// # Errors
    ///
    /// If the program fails.
    pub fn rate_keys(&self, quick: bool) -> Result<Vec<RateKeys>, Box<dyn Error>> {
        answer(self.command("rate-keys", quick))
    }

    /// Counts what so many dispatchers take.
    ///
    /// # Errors
    ///
    /// If the program fails.
    pub fn idle(&self, dispatchers: usize) -> Result<Idle, Box<dyn Error>> {
        let mut command = self.command("idle", false);
        command.arg(dispatchers.to_string());
        answer(command)
    }

    fn command(&self, count: &str, quick: bool) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(count).args(quick.then_some("--quick"));
        command
    }
}

fn answer<T: DeserializeOwned>(mut command: Command) -> Result<T, Box<dyn Error>> {
    let output = command.output()?;
    if output.status.success() {
        Ok(serde_json::from_slice(&output.stdout)?)
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(said.trim().to_owned().into())
    }
}
