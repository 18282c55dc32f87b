//! This binary in rustc's place: it adds one cfg and hands everything else on.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Names the bug to plant; where it is set, this binary is a compiler.
pub(crate) const MUTANT: &str = "KEYLANE_MUTANT";

/// Compiles one crate of the workspace with `mutant` planted: `<this> rustc <arguments>`.
pub(crate) fn compile(mutant: &OsStr) -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(rustc) = words.next() else {
        eprintln!("error: {MUTANT} is set, but there is no compiler to start");
        return ExitCode::FAILURE;
    };
    let cfg = format!("keylane_mutant=\"{}\"", mutant.to_string_lossy());
    match Command::new(&rustc)
        .args(words)
        .arg("--cfg")
        .arg(cfg)
        .status()
    {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cannot start {}: {error}", rustc.display());
            ExitCode::FAILURE
        }
    }
}

/// A copy of this binary, under a name per planted bug.
///
/// Cargo does not see the environment of the compiler, but keeps the crates of the workspace apart by the path of the
/// wrapper that compiled them: a path per bug is what makes it rebuild for another bug and not for the same one.
pub(super) struct Wrappers {
    folder: PathBuf,
    original: PathBuf,
}

impl Wrappers {
    /// Copies this binary to below `target`.
    pub(super) fn install(target: &Path) -> io::Result<Self> {
        let folder = target.join("rustc");
        std::fs::create_dir_all(&folder)?;
        let original = folder.join("xtask");
        // Renamed into place, as the old one may be running for somebody else.
        let fresh = folder.join(format!("xtask.{}", std::process::id()));
        std::fs::copy(this_binary()?, &fresh)?;
        std::fs::rename(fresh, &original)?;
        Ok(Wrappers { folder, original })
    }

    /// Lets the cargo command `build` plant the bug `name`.
    pub(super) fn plant(&self, name: &str, build: &mut Command) -> io::Result<()> {
        let wrapper = self.folder.join(format!("with-{name}"));
        if let Err(error) = std::fs::remove_file(&wrapper)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        std::fs::hard_link(&self.original, &wrapper)?;
        build
            .env("RUSTC_WORKSPACE_WRAPPER", wrapper)
            .env(MUTANT, name);
        Ok(())
    }
}

/// This binary, also when a newer build has taken its name since it was started.
fn this_binary() -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        Ok(running.to_owned())
    } else {
        std::env::current_exe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_a_wrapper_of_its_own() {
        let target = std::env::temp_dir().join(format!("keylane-xtask-{}", std::process::id()));
        let wrappers = Wrappers::install(&target).unwrap();
        let planted = |name| {
            let mut build = Command::new("cargo");
            wrappers.plant(name, &mut build).unwrap();
            let envs = build
                .get_envs()
                .map(|(name, value)| (name.to_owned(), value.unwrap().to_owned()));
            envs.collect::<Vec<_>>()
        };
        let one = planted("one");
        assert_eq!(one, planted("one"), "planting again changes nothing");
        assert_ne!(one[1].1, planted("two")[1].1);
        assert!(Path::new(&one[1].1).is_file());
        std::fs::remove_dir_all(target).unwrap();
    }
}
