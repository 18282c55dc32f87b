//! What was measured.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::contenders::Id;
use crate::measure::Sample;

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
    pub samples: BTreeMap<usize, Sample>,
    /// Why there is none, or one less.
    pub error: Option<String>,
}

impl Row {
    /// The median of a figure over the rounds.
    pub fn median(&self, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        median(self.samples.values().map(figure).collect())
    }

    /// Whether one of the measurements was cut.
    pub fn is_cut(&self) -> bool {
        self.samples.values().any(|sample| sample.is_cut)
    }

    /// Messages out of their order and leases that were lost, in all rounds.
    pub fn breaks(&self) -> u64 {
        self.samples.values().map(|sample| sample.breaks).sum()
    }

    /// The sample with the median rate.
    pub fn typical(&self) -> Option<&Sample> {
        let mut samples: Vec<&Sample> = self.samples.values().collect();
        samples.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        samples.get(samples.len() / 2).copied()
    }
}

impl Results {
    /// Adds what a measurement has shown, or why it has shown nothing.
    pub fn push(&mut self, workload: &str, id: Id, round: usize, sample: Result<Sample, String>) {
        let is_it = |row: &Row| row.workload == workload && row.id == id;
        let place = self.rows.iter().position(is_it).unwrap_or_else(|| {
            self.rows.push(Row {
                workload: workload.to_owned(),
                id,
                samples: BTreeMap::new(),
                error: None,
            });
            self.rows.len() - 1
        });
        let row = &mut self.rows[place];
        match sample {
            Ok(sample) => {
                row.samples.insert(round, sample);
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

    /// The median over the rounds of a figure of one contender, divided by that of another in the same
    /// round.
    pub fn ratio(
        &self,
        workload: &str,
        figure: impl Fn(&Sample) -> f64,
        id: Id,
        to: Id,
    ) -> Option<f64> {
        let (row, other) = (self.row(workload, id)?, self.row(workload, to)?);
        let ratios = row.samples.iter().filter_map(|(round, sample)| {
            let other = other.samples.get(round)?;
            Some(figure(sample) / figure(other))
        });
        median(ratios.collect())
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}
