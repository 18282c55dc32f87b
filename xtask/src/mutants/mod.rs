//! `cargo xtask mutants`: planted bugs, and the tests that must find them.
//!
//! A planted bug is a patch, `xtask/mutants/<name>.patch`; the product itself knows nothing of it.
//! The table `xtask/mutants.txt` names the test that must fail once the patch is applied: one that
//! `cargo xtask test` runs, with the settings that it has there. Only the schedule tests try more
//! schedules here, so that no bug escapes by chance. Patches are applied to a copy of the workspace
//! below `target/mutants`, never to the workspace. Bugs that change nothing but bodies of functions
//! share one build of each test, see [`mod@switches`]; the others are planted one after the other.
//!
//! To plant a new bug, write it into the product, then
//!
//! ```text
//! git diff > xtask/mutants/<name>.patch
//! git checkout <the changed files>
//! ```
//!
//! and add a line to the table. To repair a patch that no longer applies after the product has
//! changed, start with `git apply --3way xtask/mutants/<name>.patch`.

mod patches;
mod switches;
mod table;
mod trial;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use crate::Error;
use crate::executables::Executable;
use crate::tree::Tree;
use crate::workspace;
use switches::{Change, Switches};
use table::Planted;
use trial::{Bug, Trial, Verdict};

/// Plant each known bug and show which test finds it
///
/// A bug is found when the test named for it in xtask/mutants.txt passes without the bug and fails
/// with it. A test that hangs for 60 seconds on the bug has found it too, and is shown as such. The
/// bugs are patches in xtask/mutants; they are applied to a copy of the workspace in
/// target/mutants.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the bugs of these names
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print the bugs and their tests, run nothing
    #[arg(long)]
    list: bool,
}

/// How long a test may take without the bug, on a busy machine.
const BASELINE_LIMIT: Duration = Duration::from_secs(300);

/// How long a test may take at least with the bug.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let table = table::read(workspace::root())?;
    table::agree(&table, &patches::names(workspace::root())?)?;
    let chosen = choose(&table, &args.names)?;
    if args.list {
        chosen.iter().for_each(|planted| println!("{planted}"));
        return Ok(());
    }

    let tree = Tree::of_workspace()?;
    let mut run = Run {
        of: chosen.len(),
        ..Run::default()
    };
    let alone = switched(&tree, &chosen, &mut run)?;
    one_by_one(&tree, &alone, &mut run)?;
    let mut rows = run.rows;
    rows.sort_by_key(|(planted, _)| chosen.iter().position(|chosen| chosen == planted));
    println!("\n{}", report(&rows));
    conclude(&rows)
}

/// What has been shown so far.
#[derive(Default)]
struct Run<'a> {
    /// How many bugs there are to try.
    of: usize,
    /// How long each test takes to pass without a bug, or why it cannot show anything.
    baselines: HashMap<table::TestId<'a>, Result<Duration, String>>,
    rows: Vec<(&'a Planted, Trial)>,
}

impl<'a> Run<'a> {
    /// Runs the test of `planted` without a bug, unless that has been done.
    fn baseline(&mut self, test: Result<&Executable, String>, planted: &'a Planted) {
        self.baselines
            .entry(planted.test_id())
            .or_insert_with(|| baseline(test?, planted));
    }

    /// Runs the test with the bug, if it passes without.
    fn plant(
        &mut self,
        planted: &'a Planted,
        trial: impl FnOnce(Duration) -> Result<Trial, Error>,
    ) -> Result<(), Error> {
        println!("[{}/{}] {planted}", self.rows.len() + 1, self.of);
        let trial = match &self.baselines[&planted.test_id()] {
            Ok(took) => trial(limit(*took, planted.scheduler.is_some()))?,
            Err(why) => Trial::broken(why.clone()),
        };
        println!("    {}", trial.verdict);
        self.rows.push((planted, trial));
        Ok(())
    }
}

/// Tries all bugs that can be switched on and off. The others are returned.
fn switched<'a>(
    tree: &Tree,
    chosen: &[&'a Planted],
    run: &mut Run<'a>,
) -> Result<Vec<&'a Planted>, Error> {
    let switches = switches(tree, chosen);
    let (switched, mut alone) = chosen
        .iter()
        .partition::<Vec<&'a Planted>, _>(|planted| switches.has(&planted.name));
    let mut groups: Vec<Vec<&Planted>> = Vec::new();
    for planted in switched {
        let id = planted.build_id();
        match groups.iter_mut().find(|group| group[0].build_id() == id) {
            Some(group) => group.push(planted),
            None => groups.push(vec![planted]),
        }
    }
    let woven = tree.replace(switches.woven(&tree.read(&switches::home_file())?))?;
    for group in groups {
        let (package, target, _) = group[0].build_id();
        println!("building {package} {target} with {} bugs", group.len());
        let test = match trial::build(tree, group[0]) {
            Ok(test) => test,
            Err(error) => {
                println!("    one by one, because together {error}");
                alone.extend(group);
                continue;
            }
        };
        for planted in group {
            run.baseline(Ok(&test), planted);
            let bug = Bug::Switched(&planted.name);
            run.plant(planted, |limit| trial::run(&test, planted, bug, limit))?;
        }
    }
    woven.revert()?;
    Ok(alone)
}

/// The bugs that can be switched. One whose patch does not apply is left to be planted alone, which
/// says why.
fn switches(tree: &Tree, chosen: &[&Planted]) -> Switches {
    let mut switches = Switches::default();
    for planted in chosen {
        if let Ok(changes) = changes(tree, &patches::path(&planted.name)) {
            switches.add(&planted.name, changes);
        }
    }
    switches
}

/// What `patch` changes.
fn changes(tree: &Tree, patch: &Path) -> Result<Vec<Change>, Error> {
    let paths = tree.changed(patch)?;
    let texts = || paths.iter().map(|path| tree.read(path));
    let before = texts().collect::<Result<Vec<_>, _>>()?;
    let patched = tree.apply(patch)?;
    let after = texts().collect::<Result<Vec<_>, _>>()?;
    patched.revert()?;
    let changes = paths.into_iter().zip(before).zip(after);
    Ok(changes
        .map(|((path, before), after)| Change {
            path,
            before,
            after,
        })
        .collect())
}

/// Plants one bug after the other.
fn one_by_one<'a>(tree: &Tree, chosen: &[&'a Planted], run: &mut Run<'a>) -> Result<(), Error> {
    // All tests without a bug first: each bug then costs one build and not two.
    for planted in chosen {
        if !run.baselines.contains_key(&planted.test_id()) {
            let test = trial::build(tree, planted);
            run.baseline(test.as_ref().map_err(Clone::clone), planted);
        }
    }
    for planted in chosen {
        run.plant(planted, |limit| plant(tree, planted, limit))?;
    }
    Ok(())
}

fn baseline(test: &Executable, planted: &Planted) -> Result<Duration, String> {
    println!("without a bug: {}", planted.test_id());
    match trial::run(test, planted, Bug::None, BASELINE_LIMIT) {
        Ok(Trial {
            verdict: Verdict::Survived,
            took,
        }) => Ok(took),
        Ok(Trial {
            verdict: Verdict::Broken(why),
            ..
        }) => Err(why),
        Ok(Trial { verdict, .. }) => Err(format!("it fails without the bug: {verdict}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the test with the bug in place, and takes the bug out again.
fn plant(tree: &Tree, planted: &Planted, limit: Duration) -> Result<Trial, Error> {
    let patched = match tree.apply(&patches::path(&planted.name)) {
        Ok(patched) => patched,
        Err(error) => return Ok(Trial::broken(format!("its patch does not apply\n{error}"))),
    };
    let trial = match trial::build(tree, planted) {
        Ok(test) => trial::run(&test, planted, Bug::BuiltIn, limit),
        Err(why) => Ok(Trial::broken(why)),
    };
    patched.revert()?;
    trial
}

/// The limit with the bug planted. A test that is merely slow, on a busy machine, has found
/// nothing.
fn limit(baseline: Duration, has_schedules: bool) -> Duration {
    let passing = if has_schedules {
        baseline * trial::FEWER
    } else {
        baseline
    };
    LIMIT.max(passing * 3)
}

fn choose<'a>(table: &'a [Planted], names: &[String]) -> Result<Vec<&'a Planted>, Error> {
    if let Some(unknown) = names
        .iter()
        .find(|name| table.iter().all(|planted| planted.name != **name))
    {
        return Err(format!("no planted bug is called `{unknown}`, see --list").into());
    }
    let wanted = |planted: &&Planted| names.is_empty() || names.contains(&planted.name);
    Ok(table.iter().filter(wanted).collect())
}

fn report(rows: &[(&Planted, Trial)]) -> String {
    let width = rows
        .iter()
        .map(|(planted, _)| planted.name.len())
        .max()
        .unwrap_or(0)
        .max(11);
    let mut text = format!("{:<width$}  {:>7}  found by\n", "planted bug", "seconds");
    for (planted, trial) in rows {
        let seconds = trial.took.as_secs_f64();
        let verdict = trial.verdict.to_string();
        let verdict = verdict.lines().next().unwrap_or_default();
        text += &format!("{:<width$}  {seconds:>7.1}  {verdict}\n", planted.name);
    }
    let count =
        |is: fn(&Verdict) -> bool| rows.iter().filter(|(_, trial)| is(&trial.verdict)).count();
    text + &format!(
        "{} found by a failing test, {} by time-out, {} survived, {} could not be tried\n",
        count(|verdict| matches!(verdict, Verdict::Caught { .. })),
        count(|verdict| matches!(verdict, Verdict::TimedOut)),
        count(|verdict| matches!(verdict, Verdict::Survived)),
        count(|verdict| matches!(verdict, Verdict::Broken(_))),
    )
}

fn conclude(rows: &[(&Planted, Trial)]) -> Result<(), Error> {
    if rows.is_empty() {
        return Err("no bug is planted: nothing has been shown".into());
    }
    let escaped = rows.iter().filter(|(_, trial)| !trial.verdict.is_caught());
    let escaped: Vec<&str> = escaped.map(|(planted, _)| &*planted.name).collect();
    if escaped.is_empty() {
        Ok(())
    } else {
        Err(format!("not found: {}", escaped.join(", ")).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git;

    fn table() -> Vec<Planted> {
        table::parse("one - keylane lib a\ntwo random keylane lib b\n").unwrap()
    }

    fn trial(verdict: Verdict) -> Trial {
        Trial {
            verdict,
            took: Duration::from_millis(1_500),
        }
    }

    #[test]
    fn only_the_named_bugs_are_planted() {
        let table = table();
        assert_eq!(choose(&table, &[]).unwrap().len(), 2);
        assert_eq!(choose(&table, &["two".to_owned()]).unwrap(), [&table[1]]);
        let error = choose(&table, &["three".to_owned()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no planted bug is called `three`, see --list"
        );
    }

    #[test]
    fn one_survivor_is_a_failure() {
        let table = table();
        let broken = Verdict::Broken("it does not build\nerror: lots".to_owned());
        let caught = Verdict::Caught {
            tests: vec!["order::a".to_owned(), "order::b".to_owned()],
        };
        let rows = [
            (&table[0], trial(caught)),
            (&table[1], trial(Verdict::Survived)),
            (&table[1], trial(broken)),
        ];
        assert_eq!(
            conclude(&rows).unwrap_err().to_string(),
            "not found: two, two"
        );
        assert!(conclude(&rows[..1]).is_ok());
        let expected = "\
planted bug  seconds  found by
one              1.5  order::a and 1 more
two              1.5  NOTHING: it survived
two              1.5  NOT TRIED: it does not build
1 found by a failing test, 0 by time-out, 1 survived, 1 could not be tried
";
        assert_eq!(report(&rows), expected);
    }

    #[test]
    fn a_time_out_counts_and_a_bug_that_does_not_build_does_not() {
        let table = table();
        assert!(conclude(&[(&table[0], trial(Verdict::TimedOut))]).is_ok());
        assert!(conclude(&[(&table[0], trial(Verdict::Broken(String::new())))]).is_err());
        assert!(conclude(&[]).is_err());
    }

    #[test]
    fn slow_is_not_hanging() {
        let of_seconds = |baseline, has_schedules| {
            let limit = limit(Duration::from_secs(baseline), has_schedules);
            limit.as_secs()
        };
        assert_eq!(of_seconds(1, false), 60);
        assert_eq!(of_seconds(50, false), 150);
        assert_eq!(of_seconds(0, true), 60);
        assert_eq!(of_seconds(2, true), 1_200);
    }

    #[test]
    fn every_planted_bug_has_its_patch_and_its_test() {
        let root = workspace::root();
        let names = patches::names(root).unwrap();
        table::agree(&table::read(root).unwrap(), &names).unwrap();
        assert!(!names.is_empty());
    }

    #[test]
    fn every_patch_applies_to_the_product() {
        let root = workspace::root();
        for name in patches::names(root).unwrap() {
            let changed = git::check(root, &patches::path(&name));
            let changed = changed.unwrap_or_else(|error| panic!("{name}: {error}"));
            let in_product = |path: &String| path.starts_with("crates/") && path.contains("/src/");
            assert!(changed.iter().all(in_product), "{name}: {changed:?}");
            assert!(!changed.is_empty(), "{name}: the patch is empty");
        }
    }
}
