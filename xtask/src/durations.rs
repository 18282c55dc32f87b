//! How long the jobs of `cargo xtask test` take, as they have been measured.

use std::time::Duration;

use crate::Error;
use crate::queue::{Expected, Load};
use crate::rows;

/// The file, seen from the top of the workspace.
pub(crate) const FILE: &str = "xtask/durations.txt";

/// The table as it is in the file: the seconds, the load and the name of each job.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    /// The comment at its head.
    head: String,
    rows: Vec<(Expected, String)>,
}

/// Reads the table.
pub(crate) fn parse(text: &str) -> Result<Durations, Error> {
    let mut rows = Vec::new();
    for (number, row) in rows::rows(text) {
        let row = parse_row(row).map_err(|error| format!("{FILE}, line {number}: {error}"))?;
        rows.push(row);
    }
    let head = text
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('#'));
    Ok(Durations {
        head: head.collect(),
        rows,
    })
}

fn parse_row(row: &str) -> Result<(Expected, String), String> {
    let (seconds, rest) = rows::split(row);
    let (load, job) = rows::split(rest);
    let seconds = seconds
        .parse()
        .map_err(|_| format!("whole seconds come first, not `{seconds}`"))?;
    let load = match load {
        "computes" => Load::Computes,
        "waits" => Load::Waits,
        _ => return Err(format!("the load is `computes` or `waits`, not `{load}`")),
    };
    if job.is_empty() {
        return Err("the name of the job is missing".to_owned());
    }
    let takes = Duration::from_secs(seconds);
    Ok((Expected { takes, load }, job.to_owned()))
}

impl Durations {
    /// What is known of a job.
    pub(crate) fn of(&self, job: &str) -> Expected {
        let row = self.rows.iter().find(|(_, name)| name == job);
        row.map_or(Expected::UNKNOWN, |&(expected, _)| expected)
    }

    /// The text of the table in which the jobs are those of `took`, the longest first. Their loads
    /// stay; a new one computes, until the file says otherwise.
    pub(crate) fn measured<'a>(
        &self,
        took: impl IntoIterator<Item = (&'a str, Duration)>,
    ) -> String {
        let mut rows: Vec<(u64, &str)> = took
            .into_iter()
            .map(|(job, took)| (took.as_secs_f64().ceil() as u64, job))
            .collect();
        rows.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
        let mut text = format!("{}\n", self.head);
        for (seconds, job) in rows {
            let load = match self.of(job).load {
                Load::Computes => "computes",
                Load::Waits => "waits",
            };
            text += &format!("{seconds:>5}  {load:<8}  {job}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    const TABLE: &str = "\
# seconds load job
# of a cold clone

   90  computes  doc tests
   20  waits     keylane-sql/inbox
";

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_job_is_found_by_its_whole_name() {
        let durations = parse(TABLE).unwrap();
        let doc_tests = Expected {
            takes: seconds(90.0),
            load: Load::Computes,
        };
        assert_eq!(durations.of("doc tests"), doc_tests);
        assert_eq!(durations.of("keylane-sql/inbox").load, Load::Waits);
        assert_eq!(durations.of("doc"), Expected::UNKNOWN);
    }

    #[test]
    fn wrong_rows_are_named() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            error("\n1.5 waits a"),
            "xtask/durations.txt, line 2: whole seconds come first, not `1.5`"
        );
        assert!(error("1 sleeps a").ends_with("the load is `computes` or `waits`, not `sleeps`"));
        assert!(error("1 waits").ends_with("the name of the job is missing"));
    }

    #[test]
    fn what_was_measured_is_written_and_the_loads_stay() {
        let durations = parse(TABLE).unwrap();
        let took = [
            ("doc tests", seconds(12.0)),
            ("hello", seconds(0.2)),
            ("keylane-sql/inbox", seconds(30.4)),
            ("new", seconds(12.0)),
        ];
        let expected = "\
# seconds load job
# of a cold clone

   31  waits     keylane-sql/inbox
   12  computes  doc tests
   12  computes  new
    1  computes  hello
";
        assert_eq!(durations.measured(took), expected);
    }

    #[test]
    fn the_file_is_as_a_run_would_write_it() {
        let text = std::fs::read_to_string(workspace::root().join(FILE)).unwrap();
        let durations = parse(&text).unwrap();
        let took = durations.rows.iter().map(|(row, job)| (&**job, row.takes));
        assert_eq!(durations.measured(took), text);
    }
}
