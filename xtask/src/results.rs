//! The raw tables of comparisons and benches: `benches/results/ARM.md`, each of one run.

mod page;

use std::path::Path;
use std::process::Command;
use std::{env, fs, thread};

use crate::Error;
use crate::process::{self, Ended};
use crate::workspace::{self, answer};
use page::{Origin, Output, page, processor};

/// Where the raw tables are, seen from the top of the workspace.
const FOLDER: &str = "benches/results";

/// Whether a run is saved, and as what.
#[derive(Debug, clap::Args)]
pub(crate) struct Save {
    /// Write the tables into benches/results/ARM.md, with the date, the commit and the machine
    ///
    /// Without ARM it is `dispatch`, `sql`, `kafka`, `redis` or `leader`, and `bench` for the
    /// benches. A run of a part needs a name of its own, or it replaces the tables of all parts.
    #[arg(long, value_name = "ARM", require_equals = true, value_parser = arm)]
    save: Option<Option<String>>,
}

/// How a program hands its tables over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// As Markdown, in the file that `--markdown` names.
    Markdown,
    /// As plain text, on its standard output.
    Text,
}

impl Save {
    /// Runs `command`. What it prints goes into the file of the arm, `usual` unless another one is
    /// asked for, if it is to be saved and the command succeeds.
    pub(crate) fn run(&self, usual: &str, command: Command, form: Form) -> Result<Ended, Error> {
        let Some(asked) = &self.save else {
            return process::run(command, None);
        };
        let arm = asked.as_deref().unwrap_or(usual);
        // Sources may change during a run of hours.
        let origin = origin();
        let (ended, output) = match form {
            Form::Markdown => {
                let file = workspace::target("results").join(file_name(arm));
                written(command, &file)?
            }
            Form::Text => printed(command)?,
        };
        if ended.success() {
            save(arm, &page(arm, &origin, &output))?;
        }
        Ok(ended)
    }
}

/// Reads the name of an arm.
fn arm(name: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !name.is_empty() && name.bytes().all(is_plain) {
        Ok(name.to_owned())
    } else {
        Err("use lower-case letters, digits and hyphens".to_owned())
    }
}

fn file_name(arm: &str) -> String {
    format!("{arm}.md")
}

/// Runs `command`, which writes its tables into `file`.
fn written(mut command: Command, file: &Path) -> Result<(Ended, Output), Error> {
    fs::create_dir_all(file.parent().expect("the file lies in a folder"))?;
    // The tables of an earlier run must not pass for those of this one.
    fs::write(file, "")?;
    command.arg("--markdown").arg(file);
    let ended = process::run(command, None)?;
    let tables = fs::read_to_string(file)?;
    if ended.success() && tables.is_empty() {
        return Err("no tables were written: leave out `--save` where nothing is measured".into());
    }
    Ok((ended, Output::Markdown(tables)))
}

/// Runs `command`, whose output also goes to the caller's terminal.
fn printed(command: Command) -> Result<(Ended, Output), Error> {
    let mut text = String::new();
    let ended = process::run_reading(command, |line| {
        println!("{line}");
        text.push_str(line);
        text.push('\n');
    })?;
    Ok((ended, Output::Text(text)))
}

fn save(arm: &str, text: &str) -> Result<(), Error> {
    let folder = workspace::root().join(FOLDER);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(file_name(arm)), text)?;
    eprintln!("the tables are in {FOLDER}/{}", file_name(arm));
    Ok(())
}

fn origin() -> Origin {
    let exclude = format!(":(exclude){FOLDER}");
    let changes = answer(Command::new("git").args(["status", "--porcelain", "--", ".", &exclude]));
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut command = Command::new("cargo");
    command.arg("xtask").args(env::args_os().skip(1));
    Origin {
        date: answer(Command::new("date").args(["-u", "+%F"])),
        commit: answer(Command::new("git").args(["rev-parse", "--short", "HEAD"])),
        is_clean: changes.is_empty(),
        rustc: answer(Command::new("rustc").arg("--version")),
        processor: processor(&cpuinfo),
        cores: thread::available_parallelism().map_or(0, usize::from),
        command: process::display(&command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        save: Save,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_arm_is_asked_for_or_left_out() {
        let asked = |arg: &str| {
            let cli = Cli::try_parse_from(["versus", arg, "--quick"]).unwrap();
            assert_eq!(cli.rest.last().unwrap(), "--quick");
            cli.save.save
        };
        assert_eq!(asked("--save"), Some(None));
        assert_eq!(asked("--save=redis-7"), Some(Some("redis-7".to_owned())));
        assert_eq!(asked("--only=pull"), None);
    }

    #[test]
    fn an_arm_is_no_path() {
        for name in ["../pull", "pull.md", "Pull", ""] {
            let arg = format!("--save={name}");
            assert!(Cli::try_parse_from(["versus", &arg]).is_err(), "{name}");
        }
    }

    #[test]
    fn tables_are_those_of_this_run() {
        let file = env::temp_dir().join(format!("keylane-tables-{}.md", std::process::id()));
        // The shell calls `--markdown` `$0`, and the file `$1`.
        let (ended, output) = written(sh(r#"echo "| 1 |" > "$1""#), &file).unwrap();
        assert!(ended.success());
        assert_eq!(output, Output::Markdown("| 1 |\n".to_owned()));
        let error = written(sh("true"), &file).unwrap_err();
        assert!(error.to_string().starts_with("no tables"), "{error}");
        let (ended, _) = written(sh("false"), &file).unwrap();
        assert!(!ended.success());
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn all_lines_are_kept() {
        let (ended, output) = printed(sh("echo a; echo; echo '  b'; exit 3")).unwrap();
        assert!(!ended.success());
        assert_eq!(output, Output::Text("a\n\n  b\n".to_owned()));
    }
}
