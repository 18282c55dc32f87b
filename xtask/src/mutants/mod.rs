//! `cargo xtask mutants`: planted bugs, and the tests that must notice them.
//!
//! A planted bug is a branch of the product under `#[cfg(keylane_mutant = "its-name")]`, never compiled otherwise.
//! `xtask/mutants.txt` names the test that must fail when it is. Each bug is built with a compiler wrapper that adds
//! the cfg to the crates of this workspace only, so dependencies are built once for all of them.

mod planted;
mod trial;
pub(crate) mod wrapper;

use std::collections::HashMap;
use std::time::Duration;

use crate::Error;
use crate::workspace;
use planted::Planted;
use trial::{Trial, Verdict};

/// Plant each known bug and show which test catches it
///
/// A bug is caught when the test named for it in xtask/mutants.txt passes without the bug and fails with it. A test that
/// hangs for 60 seconds on the bug has noticed it too, and is shown as such.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the bug of this name (may be repeated)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Print the bugs and their tests, run nothing
    #[arg(long)]
    list: bool,
}

/// How long a test may take without the bug, and at least how long with it.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let table = std::fs::read_to_string(workspace::root().join("xtask/mutants.txt"))?;
    let table = planted::parse(&table)?;
    planted::agree(
        &table,
        &planted::in_sources(&workspace::root().join("crates"))?,
    )?;
    let chosen = choose(&table, &args.only)?;
    if args.list {
        chosen.iter().for_each(|planted| println!("{planted}"));
        return Ok(());
    }

    let wrappers = wrapper::Wrappers::install(&workspace::target("mutants"))?;
    let mut baselines = HashMap::new();
    let mut rows = Vec::new();
    for (number, planted) in chosen.iter().enumerate() {
        println!("[{}/{}] {planted}", number + 1, chosen.len());
        let trial = match baseline(&mut baselines, planted) {
            Ok(took) => trial::run(planted, Some(&wrappers), limit(took))?,
            Err(why) => Trial::broken(why),
        };
        println!("    {}", trial.verdict);
        rows.push((*planted, trial));
    }
    println!("\n{}", report(&rows));
    conclude(&rows)
}

/// How long the planted bug's test takes to pass without it; each test is asked once.
fn baseline<'a>(
    known: &mut HashMap<Test<'a>, Result<Duration, String>>,
    planted: &'a Planted,
) -> Result<Duration, String> {
    let test = (
        planted.scheduler,
        &*planted.package,
        &*planted.target,
        &*planted.test,
    );
    let ask = || match trial::run(planted, None, LIMIT) {
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
    };
    known.entry(test).or_insert_with(ask).clone()
}

/// The limit with the bug planted. A test that is merely slow, on a busy machine, has noticed nothing.
fn limit(baseline: Duration) -> Duration {
    LIMIT.max(baseline * 3)
}

/// What tells one test from another: scheduler, package, target, filter.
type Test<'a> = (Option<&'static str>, &'a str, &'a str, &'a str);

fn choose<'a>(table: &'a [Planted], only: &[String]) -> Result<Vec<&'a Planted>, Error> {
    if let Some(unknown) = only
        .iter()
        .find(|name| table.iter().all(|planted| planted.name != **name))
    {
        return Err(format!("no planted bug is called `{unknown}`, see --list").into());
    }
    let wanted = |planted: &&Planted| only.is_empty() || only.contains(&planted.name);
    Ok(table.iter().filter(wanted).collect())
}

fn report(rows: &[(&Planted, Trial)]) -> String {
    let width = rows
        .iter()
        .map(|(planted, _)| planted.name.len())
        .max()
        .unwrap_or(0)
        .max(11);
    let mut text = format!("{:<width$}  {:>7}  caught by\n", "planted bug", "seconds");
    for (planted, trial) in rows {
        let seconds = trial.took.as_secs_f64();
        let verdict = trial.verdict.to_string();
        let verdict = verdict.lines().next().unwrap_or_default();
        text += &format!("{:<width$}  {seconds:>7.1}  {verdict}\n", planted.name);
    }
    let count =
        |is: fn(&Verdict) -> bool| rows.iter().filter(|(_, trial)| is(&trial.verdict)).count();
    text + &format!(
        "{} caught by a failing test, {} by time-out, {} survived, {} could not be tried\n",
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
        Err(format!("not caught: {}", escaped.join(", ")).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<Planted> {
        planted::parse("one - keylane lib a\ntwo random keylane lib b\n").unwrap()
    }

    fn trial(verdict: Verdict) -> Trial {
        Trial {
            verdict,
            took: Duration::from_millis(1_500),
        }
    }

    #[test]
    fn only_what_was_asked_for() {
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
            "not caught: two, two"
        );
        assert!(conclude(&rows[..1]).is_ok());
        let expected = "\
planted bug  seconds  caught by
one              1.5  order::a and 1 more
two              1.5  NOTHING: it survived
two              1.5  NOT TRIED: it does not build
1 caught by a failing test, 0 by time-out, 1 survived, 1 could not be tried
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
        assert_eq!(limit(Duration::from_secs(1)), Duration::from_secs(60));
        assert_eq!(limit(Duration::from_secs(50)), Duration::from_secs(150));
    }

    #[test]
    fn every_planted_bug_has_its_test() {
        let root = workspace::root();
        let table = std::fs::read_to_string(root.join("xtask/mutants.txt")).unwrap();
        let planted = planted::in_sources(&root.join("crates")).unwrap();
        planted::agree(&planted::parse(&table).unwrap(), &planted).unwrap();
    }
}
