//! The folder of Kafka's jars, and their download.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::{find, tail};
use crate::{ServerError, cache};

/// The version of Kafka that [`fetch`] downloads and tests start.
pub const VERSION: &str = "4.3.1";

/// The artefacts that Maven fetches, with all their dependencies. The tools create topics and
/// format the storage; without the last one, Kafka would not log.
const ARTEFACTS: [[&str; 3]; 3] = [
    ["org.apache.kafka", "kafka_2.13", VERSION],
    ["org.apache.kafka", "kafka-tools", VERSION],
    ["org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"],
];

/// The Maven plugin that copies the jars, pinned like them.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Fetches Kafka's jars from Maven's repository, if they are not there yet, and returns their
/// folder. It needs `mvn` on the search path, and calls `progress` with each line of its output.
/// Tests do not call this: `cargo xtask setup` does.
///
/// The folder is `kafka-4.3.1`, some 55 MB, in `$KEYLANE_CACHE`, in `$XDG_CACHE_HOME/keylane` or in
/// `~/.cache/keylane`: the first of these whose variable is set. It appears complete or not at all,
/// and two fetches at a time do no harm. No other file remains, neither there nor in Maven's own
/// folder, unless this process is killed: then a folder whose name begins with `.kafka`.
///
/// # Errors
///
/// [`Missing`](ServerError::Missing) if there is no `mvn` or none of the variables is set;
/// [`Program`](ServerError::Program) if Maven fails, for example because it cannot reach its
/// repository; [`System`](ServerError::System) if the folder cannot be written.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::kafka;
///
/// let folder = kafka::fetch(|line| eprintln!("{line}"))?;
/// println!("Kafka {} is in {}", kafka::VERSION, folder.display());
/// # Ok(())
/// # }
/// ```
pub fn fetch(progress: impl FnMut(&str)) -> Result<PathBuf, ServerError> {
    let folder = folder()?;
    if !folder.is_dir() {
        cache::install(&folder, |work| maven(work, progress))?;
    }
    Ok(folder)
}

/// Returns the class path with all jars, if they have been fetched.
pub(super) fn class_path() -> Result<OsString, ServerError> {
    let mut path = installed(folder()?)?.into_os_string();
    // Java's own wildcard, not the shell's.
    path.push("/*");
    Ok(path)
}

fn installed(folder: PathBuf) -> Result<PathBuf, ServerError> {
    let what = "Kafka 4.3.1";
    folder
        .is_dir()
        .then_some(folder)
        .ok_or(ServerError::Missing { what })
}

fn folder() -> Result<PathBuf, ServerError> {
    cache::folder(&format!("kafka-{VERSION}"))
}

/// Lets Maven fetch into `work`. Returns the folder in it with the jars.
fn maven(work: &Path, mut progress: impl FnMut(&str)) -> Result<PathBuf, ServerError> {
    let system = || ServerError::system("run Maven");
    let (project, jars) = (work.join("pom.xml"), work.join("jars"));
    fs::write(&project, description()).map_err(system())?;
    // It keeps all variables of the caller: they may name a proxy to the repository.
    let mut child = Command::new(find("mvn")?)
        .args(["--batch-mode", "-Dstyle.color=never", "--strict-checksums"])
        .arg("--file")
        .arg(&project)
        .arg(COPY)
        .arg("-DincludeScope=runtime")
        .arg(definition("outputDirectory", &jars))
        // A repository of its own: two fetches at a time may not share one.
        .arg(definition("maven.repo.local", &work.join("repository")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(system())?;
    let mut output = String::new();
    let stdout = child.stdout.take().expect("stdout was piped above");
    for line in BufReader::new(stdout).lines() {
        let line = line.map_err(system())?;
        progress(&line);
        output.push_str(&line);
        output.push('\n');
    }
    let status = child.wait().map_err(system())?;
    if status.success() {
        return Ok(jars);
    }
    Err(ServerError::Program {
        program: "mvn".to_owned(),
        status,
        output: tail(&output),
    })
}

/// Returns `-Dname=path`.
fn definition(name: &str, path: &Path) -> OsString {
    let mut definition = OsString::from(format!("-D{name}="));
    definition.push(path);
    definition
}

/// Returns a project whose dependencies are the artefacts.
fn description() -> String {
    let dependencies = ARTEFACTS.map(|[group, artefact, version]| {
        format!(
            "    <dependency>\n      <groupId>{group}</groupId>\n      \
             <artifactId>{artefact}</artifactId>\n      <version>{version}</version>\n    \
             </dependency>\n"
        )
    });
    let dependencies = dependencies.concat();
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  \
         <modelVersion>4.0.0</modelVersion>\n  <groupId>keylane</groupId>\n  \
         <artifactId>kafka</artifactId>\n  <version>{VERSION}</version>\n  \
         <dependencies>\n{dependencies}  </dependencies>\n</project>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_fetched_is_named_with_what_to_do() {
        let error = installed("/no/such/folder".into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Kafka 4.3.1 is missing: run `cargo xtask setup`"
        );
        assert!(error.to_string().contains(VERSION));
    }
}
