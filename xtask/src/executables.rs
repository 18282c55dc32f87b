//! What a cargo build has made that can be started.
//!
//! Tests and examples are started directly where a time limit holds: killing `cargo` would leave
//! its child behind.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Error;

/// A program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Executable {
    /// The name of its target.
    pub(crate) name: String,
    /// `lib`, `test`, `example` and so on.
    pub(crate) kind: String,
    /// Whether it runs the tests of its target, instead of being it.
    pub(crate) harness: bool,
    pub(crate) path: PathBuf,
    /// The manifest of its package.
    pub(crate) manifest: PathBuf,
}

impl Executable {
    /// The folder of its package and, where that has several programs, its own name.
    pub(crate) fn place(&self) -> String {
        let folder = self.package().file_name().unwrap_or_default();
        let folder = folder.to_string_lossy();
        match &*self.kind {
            "lib" | "bin" => folder.into_owned(),
            _ => format!("{folder}/{}", self.name),
        }
    }

    fn package(&self) -> &Path {
        self.manifest.parent().expect("a manifest lies in a folder")
    }

    /// A command that starts it where and how cargo would.
    pub(crate) fn command(&self) -> Command {
        let package = self.package();
        let mut command = Command::new(&self.path);
        command
            .current_dir(package)
            .env("CARGO_MANIFEST_DIR", package);
        command
    }
}

/// Makes cargo say what it has built, a line each, for [`executable`] to read.
pub(crate) const MESSAGES: &str = "--message-format=json-render-diagnostics";

/// Runs `build`, a cargo command, in silence. The error is what the compiler said.
pub(crate) fn build(mut build: Command) -> Result<Vec<Executable>, Error> {
    let output = build.arg(MESSAGES).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(executable)
        .collect())
}

/// Reads one of cargo's messages, if it is about an executable.
pub(crate) fn executable(message: &str) -> Option<Executable> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" {
        return None;
    }
    let target = &message["target"];
    Some(Executable {
        name: target["name"].as_str()?.to_owned(),
        kind: target["kind"][0].as_str()?.to_owned(),
        harness: message["profile"]["test"].as_bool()?,
        path: message["executable"].as_str()?.into(),
        manifest: message["manifest_path"].as_str()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_artifacts_that_run_are_executables() {
        let library = r#"{"reason":"compiler-artifact","manifest_path":"/k/Cargo.toml","executable":null,
            "target":{"kind":["lib"],"name":"keylane"},"profile":{"test":false}}"#;
        assert_eq!(executable(library), None);
        assert_eq!(
            executable(r#"{"reason":"build-finished","success":true}"#),
            None
        );
        assert_eq!(executable("   Compiling keylane"), None);

        let test = r#"{"reason":"compiler-artifact","manifest_path":"/t/Cargo.toml","executable":"/t/engine-1",
            "target":{"kind":["test"],"name":"engine"},"profile":{"test":true}}"#;
        let expected = Executable {
            name: "engine".to_owned(),
            kind: "test".to_owned(),
            harness: true,
            path: "/t/engine-1".into(),
            manifest: "/t/Cargo.toml".into(),
        };
        assert_eq!(expected.place(), "t/engine");
        assert_eq!(executable(test), Some(expected));
    }
}
