//! Running what is left of a proof.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::process::Command;

use super::perform::{Done, Hash, perform};
use super::report::{self, Row};
use super::results::{self, Next, Record, State};
use super::step::Step;
use crate::Error;
use crate::fingerprint;
use crate::kept::Kept;
use crate::workspace;

/// How to run.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The name of the scale, for the results.
    pub(crate) scale: &'static str,
    /// The seed of an earlier run.
    pub(crate) seed: Option<u64>,
    /// Whether to run what has passed on this tree already.
    pub(crate) again: bool,
}

/// A run, and the results of all runs.
#[derive(Debug)]
pub(crate) struct Run {
    settings: Settings,
    /// The seed of steps that have none yet.
    seed: u64,
    kept: Kept<Record>,
    hash: Hash,
    /// The names of the steps that have run.
    new: BTreeSet<String>,
}

impl Run {
    pub(crate) fn new(settings: Settings) -> Result<Self, Error> {
        Ok(Self {
            seed: settings.seed.unwrap_or_else(fresh_seed),
            settings,
            kept: Kept::read(workspace::target("soak").join("results.json"))?,
            hash: fingerprint::of_workspace,
            new: BTreeSet::new(),
        })
    }

    /// Prints the steps, and runs none.
    pub(crate) fn list(&self, steps: &[&Step]) -> Result<(), Error> {
        let tree = (self.hash)()?;
        let rows = self.rows(steps, &tree);
        println!("tree {}", fingerprint::short(&tree));
        print!("{}", report::list(&rows, self.kept.records()));
        Ok(())
    }

    /// Runs what is left of these steps, also after one has failed.
    pub(crate) fn run(&mut self, steps: &[&Step]) -> Result<(), Error> {
        println!("the seed is {0}: `--seed {0}` repeats it", self.seed);
        for step in steps {
            let tree = (self.hash)()?;
            let state = results::state(self.kept.records(), &tree, step);
            match (results::next(state, step, self.settings.again), state) {
                (Next::Run { amount, seed }, _) => self.run_step(step, tree, amount, seed)?,
                (Next::Keep, State::Skipped(why)) => println!("{step}: skipped, {why}"),
                (Next::Keep, _) => println!("{step}: it has passed on this tree"),
            }
        }
        Ok(())
    }

    fn run_step(
        &mut self,
        step: &Step,
        tree: String,
        amount: u64,
        seed: Option<u64>,
    ) -> Result<(), Error> {
        let seed = self.settings.seed.or(seed).unwrap_or(self.seed);
        if seed != self.seed {
            println!("{step}: it has failed on this tree; again with its seed, {seed}");
        }
        let done = perform(step, amount, seed, self.hash)?;
        if !is_of_one_tree(&done, &tree) {
            println!("{step}: not kept, because files have changed while it ran");
            return Ok(());
        }
        let record = Record {
            tree,
            step: step.name.clone(),
            part: step.part.number(),
            amount,
            scale: self.settings.scale.to_owned(),
            passed: done.passed,
            result: done.result,
            tests: done.tests,
            seconds: done.seconds,
            measured: done.measured,
            seed,
            failures: u64::from(!done.passed),
            commit: answer(Command::new("git").args(["rev-parse", "HEAD"])),
            rustc: answer(Command::new("rustc").arg("--version")),
        };
        self.kept.change(|records| results::add(records, record))?;
        self.new.insert(step.to_string());
        Ok(())
    }

    /// Prints how all `steps` stand on the tree. An error if one has failed on it.
    pub(crate) fn conclude(&self, steps: &[&Step]) -> Result<(), Error> {
        let tree = (self.hash)()?;
        let rows = self.rows(steps, &tree);
        println!("\n{}", report::table(&rows));
        println!("{}", report::summary(&rows, self.kept.records(), &tree));
        let failed = rows.iter();
        let failed = failed.filter(|row| matches!(row.state, State::Failed(_)));
        let failed: Vec<String> = failed.map(|row| row.step.to_string()).collect();
        if failed.is_empty() {
            Ok(())
        } else {
            Err(format!("failed on this tree: {}", failed.join(", ")).into())
        }
    }

    fn rows<'a>(&'a self, steps: &[&'a Step], tree: &str) -> Vec<Row<'a>> {
        let row = |step: &&'a Step| Row {
            step,
            state: results::state(self.kept.records(), tree, step),
            is_new: self.new.contains(&step.to_string()),
        };
        steps.iter().map(row).collect()
    }
}

/// Whether what came of a step holds for the tree on which it began. A failure does: it needs a
/// look in any case, and a test that fails may have written a case down.
fn is_of_one_tree(done: &Done, before: &str) -> bool {
    !done.passed || done.tree == before
}

/// A number for all random tests of a run, short enough to be typed.
fn fresh_seed() -> u64 {
    RandomState::new().hash_one("soak") >> 32
}

/// What `command` prints, or nothing where it does not run.
fn answer(command: &mut Command) -> String {
    let output = command.current_dir(workspace::root()).output();
    let stdout = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&stdout).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::step;
    use super::*;
    use crate::proof::Work;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("keylane-xtask-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn run(&self, again: bool) -> Run {
            let settings = Settings {
                scale: "normal",
                seed: None,
                again,
            };
            Run {
                settings,
                seed: 1,
                kept: Kept::read(self.0.join("results.json")).unwrap(),
                hash: || Ok("now".to_owned()),
                new: BTreeSet::new(),
            }
        }

        /// Runs the step in a run of its own. Whether it has run, and what is said.
        fn runs(&self, step: &Step, again: bool) -> (bool, Result<(), String>) {
            let mut run = self.run(again);
            run.run(&[step]).unwrap();
            let conclusion = run.conclude(&[step]).map_err(|error| error.to_string());
            (!run.new.is_empty(), conclusion)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn with(work: fn(u64) -> Command) -> Step {
        let mut step = step(10);
        step.work = Work::Tests(work);
        step
    }

    #[test]
    fn a_step_runs_once_on_a_tree() {
        let folder = Folder::new("runs-once");
        let passes = with(|_| {
            let mut command = Command::new("echo");
            command.arg("test result: ok. 1 passed; 0 failed");
            command
        });
        assert_eq!(folder.runs(&passes, false), (true, Ok(())));
        assert_eq!(folder.runs(&passes, false), (false, Ok(())));
        assert_eq!(folder.runs(&passes, true), (true, Ok(())));
    }

    #[test]
    fn a_failure_stands_until_the_step_passes() {
        let folder = Folder::new("fails");
        let fails = with(|_| Command::new("false"));
        let failed = Err("failed on this tree: inbox kills 1/2".to_owned());
        assert_eq!(folder.runs(&fails, false), (true, failed.clone()));
        let run = folder.run(false);
        let conclusion = run.conclude(&[&fails]).map_err(|error| error.to_string());
        assert_eq!(conclusion, failed, "also of a run that has not run it");
        assert_eq!(folder.runs(&fails, false), (true, failed));
        assert_eq!(folder.run(false).kept.records()[0].failures, 2);
    }

    #[test]
    fn a_pass_is_kept_if_the_tree_has_stayed() {
        let done = |passed| Done {
            passed,
            result: String::new(),
            tests: None,
            seconds: 0.0,
            measured: Vec::new(),
            tree: "after".to_owned(),
        };
        assert!(is_of_one_tree(&done(true), "after"));
        assert!(!is_of_one_tree(&done(true), "before"));
        assert!(is_of_one_tree(&done(false), "before"));
    }
}
