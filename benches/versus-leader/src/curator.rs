//! The program for Curator, which Maven builds on first use.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// The program, with all that it needs.
#[derive(Clone, Debug)]
pub struct Curator {
    target: PathBuf,
}

impl Curator {
    /// Builds it, in a folder beside this program. Maven fetches what it needs the first time.
    pub fn build() -> Result<Self, Error> {
        let program = std::env::current_exe()?;
        let target = program.parent().unwrap_or(Path::new(".")).join("java");
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/pom.xml");
        let status = Command::new("mvn")
            .args(["--quiet", "--batch-mode", "--file"])
            .arg(project)
            .arg(format!("-Dversus.target={}", target.display()))
            .args(["package", "dependency:copy-dependencies"])
            .status()
            .map_err(|error| format!("Maven is needed for Curator: {error}"))?;
        if !status.success() {
            return Err("Maven has failed to build the program for Curator".into());
        }
        Ok(Self { target })
    }

    /// Returns a command that runs it: the virtual machine as it is by default.
    pub fn command(&self) -> Command {
        let target = self.target.display();
        let mut command = Command::new("java");
        command
            .arg("-cp")
            .arg(format!("{target}/versus-leader-0.jar:{target}/lib/*"));
        command.arg("Versus");
        command
    }
}
