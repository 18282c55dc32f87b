//! Jars from Maven's repository.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ServerError;
use crate::program::{find, tail};

/// A group, a name in it, and a version.
pub(crate) type Artefact = [&'static str; 3];

/// The Maven plugin that copies the jars, pinned like them.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Lets Maven fetch these artefacts, with all their dependencies, into `work`. Returns the folder
/// in it with the jars.
pub(crate) fn fetch(
    work: &Path,
    artefacts: &[Artefact],
    mut progress: impl FnMut(&str),
) -> Result<PathBuf, ServerError> {
    let system = || ServerError::system("run Maven");
    let (project, jars) = (work.join("pom.xml"), work.join("jars"));
    fs::write(&project, description(artefacts)).map_err(system())?;
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
fn description(artefacts: &[Artefact]) -> String {
    let dependencies = artefacts.iter().map(|[group, artefact, version]| {
        format!(
            "    <dependency>\n      <groupId>{group}</groupId>\n      \
             <artifactId>{artefact}</artifactId>\n      <version>{version}</version>\n    \
             </dependency>\n"
        )
    });
    let dependencies: String = dependencies.collect();
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  \
         <modelVersion>4.0.0</modelVersion>\n  <groupId>keylane</groupId>\n  \
         <artifactId>servers</artifactId>\n  <version>1</version>\n  \
         <dependencies>\n{dependencies}  </dependencies>\n</project>\n"
    )
}
