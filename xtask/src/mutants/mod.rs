//! `cargo xtask mutants`: plants bugs, and runs the tests that must find them.
//!
//! A planted bug is a patch, `xtask/mutants/<name>.patch`; the product itself has no trace of it.
//! The table `xtask/mutants.txt` names the test that must fail once the patch is applied: one that
//! `cargo xtask test` runs, with the same settings. Only the schedule tests try more schedules
//! here, so that no bug escapes by chance. Patches are applied to a copy of the workspace below
//! `target/mutants`, never to the workspace. Bugs that change only bodies of functions share one
//! build of each test, see [`switches`]; the others are planted one after the other. The
//! verdict on each bug is kept, see [`mod@verdicts`].
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
mod verdicts;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use crate::Error;
use crate::executables::Executable;
use crate::fingerprint;
use crate::kept::Kept;
use crate::part::Part;
use crate::tree::Tree;
use crate::workspace;
use switches::{Change, Switches};
use table::Planted;
use trial::{Bug, Trial, Verdict};
use verdicts::{Present, Shown};

/// Plant each known bug and show which test finds it
///
/// A bug is found when the test named for it in xtask/mutants.txt passes without the bug and fails
/// with it. A test that hangs for 60 seconds on the bug has found it too, and is shown as such. The
/// bugs are patches in xtask/mutants; they are applied to a copy of the workspace in
/// target/mutants.
///
/// The verdicts are kept in target/mutants/verdicts.json, each with the hash of the patch and of
/// the tree that it was applied to. A bug with a verdict is not tried again, unless it is named. So
/// an interrupted run goes on where it stopped. The exit status is a failure if one of the
/// requested bugs has not been found.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the bugs of these names, including those with a verdict
    #[arg(value_name = "NAME", conflicts_with = "part")]
    names: Vec<String>,
    /// Only this part of the table: 1/3, 2/3 and 3/3 are all bugs
    #[arg(long, value_name = "K/N")]
    part: Option<Part>,
    /// Also try bugs with a verdict
    #[arg(long)]
    again: bool,
    /// Print the bugs, their tests and the verdicts, without a run
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
    let chosen = match args.part {
        Some(part) => table[part.range(table.len())].iter().collect(),
        None => choose(&table, &args.names)?,
    };
    let hash = fingerprint::of_workspace()?;
    let present = Present::of(workspace::root(), hash, &table)?;
    let kept = Kept::read(workspace::target("mutants").join("verdicts.json"))?;
    if args.list {
        print!("{}", report(&rows(&chosen, &present, kept.records())));
        return Ok(());
    }

    let again = args.again || !args.names.is_empty();
    let left = present.left(kept.records(), &chosen, again);
    let tree = fingerprint::short(present.tree());
    let (chosen_count, count) = (chosen.len(), left.len());
    println!("tree {tree}: {count} of {chosen_count} planted bugs are to be tried");
    let mut run = Run {
        of: count,
        tried: 0,
        baselines: HashMap::new(),
        present,
        kept,
    };
    if !left.is_empty() {
        try_all(&left, &mut run)?;
    }
    let of = |chosen| rows(chosen, &run.present, run.kept.records());
    let tried = of(&chosen);
    println!("\n{}", report(&tried));
    println!(
        "of all on this tree: {}",
        counts(&of(&table.iter().collect::<Vec<_>>()))
    );
    conclude(&tried)
}

fn try_all<'a>(left: &[&'a Planted], run: &mut Run<'a>) -> Result<(), Error> {
    let tree = Tree::of_workspace()?;
    if fingerprint::of_workspace()? != run.present.tree() {
        return Err("files have changed while they were copied: start it again".into());
    }
    let alone = switched(&tree, left, run)?;
    one_by_one(&tree, &alone, run)
}

/// A run, and what has been shown so far.
struct Run<'a> {
    /// How many bugs there are to try.
    of: usize,
    tried: usize,
    /// How long each test takes to pass without a bug, or why it cannot show anything.
    baselines: HashMap<table::TestId<'a>, Result<Duration, String>>,
    present: Present,
    kept: Kept<Shown>,
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
        planted: &Planted,
        trial: impl FnOnce(Duration) -> Result<Trial, Error>,
    ) -> Result<(), Error> {
        self.tried += 1;
        println!("[{}/{}] {planted}", self.tried, self.of);
        let trial = match &self.baselines[&planted.test_id()] {
            Ok(took) => trial(limit(*took, planted.scheduler.is_some()))?,
            Err(why) => Trial::broken(why.clone()),
        };
        println!("    {}", trial.verdict);
        let present = &self.present;
        self.kept.change(|all| present.add(all, planted, trial))
    }
}

/// Tries all bugs that can be switched on and off. The others are returned.
fn switched<'a>(
    tree: &Tree,
    chosen: &[&'a Planted],
    run: &mut Run<'a>,
) -> Result<Vec<&'a Planted>, Error> {
    let mut switches = switches_of(tree, chosen);
    let (switched, mut alone) = chosen
        .iter()
        .partition::<Vec<&'a Planted>, _>(|planted| switches.has(&planted.name));
    let mut groups: VecDeque<Vec<&Planted>> = VecDeque::new();
    for planted in switched {
        let id = planted.build_id();
        match groups.iter_mut().find(|group| group[0].build_id() == id) {
            Some(group) => group.push(planted),
            None => groups.push_back(vec![planted]),
        }
    }
    let mut woven = tree.replace(switches.woven(|path| tree.read(path))?)?;
    while let Some(group) = groups.pop_front() {
        let (package, target, _) = group[0].build_id();
        println!("building {package} {target} with {} bugs", group.len());
        let error = match trial::build(tree, group[0]) {
            Ok(test) => {
                for planted in group {
                    run.baseline(Ok(&test), planted);
                    let bug = Bug::Switched(&planted.name);
                    run.plant(planted, |limit| trial::run(&test, planted, bug, limit))?;
                }
                continue;
            }
            Err(error) => error,
        };
        let blamed = switches.blamed(&error);
        if blamed.is_empty() {
            println!("    one by one, because together {error}");
            alone.extend(group);
            continue;
        }
        // These are left to be planted alone, which says what the compiler says of each.
        for name in &blamed {
            println!("    without {name}, which does not compile");
            switches.remove(name);
        }
        groups.push_front(group);
        for group in &mut groups {
            alone.extend(group.extract_if(.., |planted| blamed.contains(&planted.name)));
        }
        groups.retain(|group| !group.is_empty());
        woven.revert()?;
        woven = tree.replace(switches.woven(|path| tree.read(path))?)?;
    }
    woven.revert()?;
    Ok(alone)
}

/// The bugs that can be switched. One whose patch does not apply is left to be planted alone, which
/// says why.
fn switches_of(tree: &Tree, chosen: &[&Planted]) -> Switches {
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

/// The bugs, and what has been shown of each.
fn rows<'a>(chosen: &[&'a Planted], present: &Present, all: &'a [Shown]) -> Vec<Row<'a>> {
    let row = |planted: &&'a Planted| (*planted, present.shown(all, planted));
    chosen.iter().map(row).collect()
}

type Row<'a> = (&'a Planted, Option<&'a Shown>);

fn report(rows: &[Row]) -> String {
    let width = rows
        .iter()
        .map(|(planted, _)| planted.name.len())
        .max()
        .unwrap_or(0)
        .max(11);
    let mut text = format!("{:<width$}  {:>7}  found by\n", "planted bug", "seconds");
    for (planted, shown) in rows {
        let (seconds, verdict) = match shown {
            Some(shown) => (format!("{:.1}", shown.seconds), shown.verdict.to_string()),
            None => ("-".to_owned(), format!("NOT RUN: {}", planted.test_id())),
        };
        let verdict = verdict.lines().next().unwrap_or_default();
        text += &format!("{:<width$}  {seconds:>7}  {verdict}\n", planted.name);
    }
    text + &counts(rows) + "\n"
}

fn counts(rows: &[Row]) -> String {
    let count = |is: fn(Option<&Verdict>) -> bool| {
        let verdicts = rows
            .iter()
            .map(|(_, shown)| shown.map(|shown| &shown.verdict));
        verdicts.filter(|verdict| is(*verdict)).count()
    };
    format!(
        "{} found by a failing test, {} by time-out, {} survived, {} could not be tried, {} not run",
        count(|verdict| matches!(verdict, Some(Verdict::Caught { .. }))),
        count(|verdict| matches!(verdict, Some(Verdict::TimedOut))),
        count(|verdict| matches!(verdict, Some(Verdict::Survived))),
        count(|verdict| matches!(verdict, Some(Verdict::Broken(_)))),
        count(|verdict| verdict.is_none()),
    )
}

fn conclude(rows: &[Row]) -> Result<(), Error> {
    if rows.is_empty() {
        return Err("no bug is planted: nothing has been shown".into());
    }
    let is_found = |shown: &Shown| shown.verdict.is_caught();
    let escaped = rows
        .iter()
        .filter(|(_, shown)| !shown.is_some_and(is_found));
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

    fn shown(planted: &Planted, verdict: Verdict) -> Shown {
        let present = verdicts::tests::present("now", "patch");
        let took = Duration::from_millis(1_500);
        let mut all = Vec::new();
        present.add(&mut all, planted, Trial { verdict, took });
        all.remove(0)
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
        let shown = [
            shown(&table[0], caught),
            shown(&table[1], Verdict::Survived),
            shown(&table[1], broken),
        ];
        let rows = [
            (&table[0], Some(&shown[0])),
            (&table[1], Some(&shown[1])),
            (&table[1], Some(&shown[2])),
            (&table[1], None),
        ];
        assert_eq!(
            conclude(&rows).unwrap_err().to_string(),
            "not found: two, two, two"
        );
        assert!(conclude(&rows[..1]).is_ok());
        let expected = "\
planted bug  seconds  found by
one              1.5  order::a and 1 more
two              1.5  NOTHING: it survived
two              1.5  NOT TRIED: it does not build
two                -  NOT RUN: keylane lib b, random schedules
1 found by a failing test, 0 by time-out, 1 survived, 1 could not be tried, 1 not run
";
        assert_eq!(report(&rows), expected);
    }

    #[test]
    fn a_time_out_counts_and_a_bug_that_was_not_tried_does_not() {
        let table = table();
        let conclude = |verdict| conclude(&[(&table[0], Some(&shown(&table[0], verdict)))]);
        assert!(conclude(Verdict::TimedOut).is_ok());
        assert!(conclude(Verdict::Broken(String::new())).is_err());
        assert!(super::conclude(&[(&table[0], None)]).is_err());
        assert!(super::conclude(&[]).is_err());
    }

    #[test]
    fn what_is_kept_of_a_bug_is_shown_beside_it() {
        let table = table();
        let present = verdicts::tests::present("now", "patch");
        let all = [shown(&table[1], Verdict::TimedOut)];
        let chosen: Vec<&Planted> = table.iter().collect();
        let expected = [(&table[0], None), (&table[1], Some(&all[0]))];
        assert_eq!(rows(&chosen, &present, &all), expected);
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
    fn every_patch_applies_to_what_tests_judge() {
        let root = workspace::root();
        for name in patches::names(root).unwrap() {
            let changed = git::check(root, &patches::path(&name));
            let changed = changed.unwrap_or_else(|error| panic!("{name}: {error}"));
            let is_judged = |path: &String| {
                let is_code = path.contains("/src/") || path.contains("/page/");
                let is_product = path.starts_with("crates/") && is_code;
                is_product || path.starts_with("examples/") && !path.contains("/tests/")
            };
            assert!(changed.iter().all(is_judged), "{name}: {changed:?}");
            assert!(!changed.is_empty(), "{name}: the patch is empty");
        }
    }
}
