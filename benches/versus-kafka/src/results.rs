//! What was measured.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::contenders::Id;
use crate::report::Report;

/// All that was measured.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    /// Each contender at each workload, as they were measured.
    pub rows: Vec<Row>,
}

/// One contender at one workload.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// The contender.
    pub id: Id,
    /// By round.
    pub reports: BTreeMap<usize, Report>,
    /// Why there is none.
    pub error: Option<String>,
}

impl Row {
    /// The median of a figure over the rounds.
    pub fn median(&self, figure: impl Fn(&Report) -> f64) -> Option<f64> {
        median(self.reports.values().map(figure).collect())
    }

    /// Records out of their order, in all rounds.
    pub fn breaks(&self) -> u64 {
        self.reports.values().map(|report| report.breaks).sum()
    }
}

impl Results {
    /// Adds what one process has reported, or why it has not.
    pub fn push(&mut self, workload: &str, id: Id, round: usize, report: Result<Report, String>) {
        let is_it = |row: &Row| row.workload == workload && row.id == id;
        let place = self.rows.iter().position(is_it).unwrap_or_else(|| {
            self.rows.push(Row {
                workload: workload.to_owned(),
                id,
                reports: BTreeMap::new(),
                error: None,
            });
            self.rows.len() - 1
        });
        let row = &mut self.rows[place];
        match report {
            Ok(report) => {
                row.reports.insert(round, report);
            }
            Err(error) => row.error = Some(error),
        }
    }

    /// The row of a contender at a workload.
    pub fn row(&self, workload: &str, id: Id) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.workload == workload && row.id == id)
    }

    /// The median over the rounds of a figure of keylane, divided by what `other` is in that round.
    pub fn ratio(
        &self,
        workload: &str,
        figure: impl Fn(&Report) -> f64,
        other: impl Fn(usize) -> Option<f64>,
    ) -> Option<f64> {
        let row = self.row(workload, Id::Keylane)?;
        let ratios = row
            .reports
            .iter()
            .filter_map(|(round, report)| Some(figure(report) / other(*round)?));
        median(ratios.collect())
    }

    /// A figure of a contender in a round.
    pub fn figure(
        &self,
        workload: &str,
        id: Id,
        round: usize,
        figure: impl Fn(&Report) -> f64,
    ) -> Option<f64> {
        self.row(workload, id)?.reports.get(&round).map(figure)
    }

    /// The names of the workloads, as they were measured.
    pub fn workloads(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.workload.as_str()) {
                names.push(&row.workload);
            }
        }
        names
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}
