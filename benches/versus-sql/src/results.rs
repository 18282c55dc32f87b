//! What was measured.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::backlog::Backlog;
use crate::contenders::Id;
use crate::latency::Latency;
use crate::measure::Sample;
use crate::workload::{PAUSE, Workload};

/// All that was measured.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    /// Each queue at each workload.
    pub rows: Vec<Row>,
    /// On an idle system.
    pub latencies: Vec<Latency>,
    /// A long backlog.
    pub backlogs: Vec<Backlog>,
    /// How often per second one handler runs that pauses, one run after the other.
    pub serial: f64,
}

/// One queue at one workload.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// The queue.
    pub id: Id,
    /// By round.
    pub samples: BTreeMap<usize, Sample>,
    /// Why there is none.
    pub error: Option<String>,
}

impl Row {
    /// The median of the rates.
    pub fn rate(&self) -> Option<f64> {
        median(self.samples.values().map(|sample| sample.rate).collect())
    }

    /// Whether one of the measurements was cut.
    pub fn is_cut(&self) -> bool {
        self.samples.values().any(|sample| sample.is_cut)
    }

    /// Messages out of their order, in all rounds.
    pub fn breaks(&self) -> u64 {
        self.samples.values().map(|sample| sample.breaks).sum()
    }
}

impl Results {
    /// The row of a queue at a workload, made if it is not there.
    pub fn row_mut(&mut self, workload: &Workload, id: Id) -> &mut Row {
        let is_it = |row: &Row| row.workload == workload.name && row.id == id;
        let place = self.rows.iter().position(is_it).unwrap_or_else(|| {
            self.rows.push(Row {
                workload: workload.name.clone(),
                id,
                samples: BTreeMap::new(),
                error: None,
            });
            self.rows.len() - 1
        });
        &mut self.rows[place]
    }

    /// The row of a queue at a workload.
    pub fn row(&self, workload: &str, id: Id) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.workload == workload && row.id == id)
    }

    /// The median of the ratios of two queues within a round.
    pub fn ratio(&self, workload: &str, id: Id, to: Id) -> Option<f64> {
        let (row, other) = (self.row(workload, id)?, self.row(workload, to)?);
        let ratios = row.samples.iter().filter_map(|(round, sample)| {
            let other = other.samples.get(round)?;
            Some(sample.rate / other.rate)
        });
        median(ratios.collect())
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

    /// The queues, as they were measured.
    pub fn ids(&self) -> Vec<Id> {
        let mut ids = Id::ALL.to_vec();
        ids.retain(|id| self.rows.iter().any(|row| row.id == *id));
        ids
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

/// How often per second a handler runs that pauses, one run after the other and without a queue.
pub async fn serial() -> f64 {
    let began = Instant::now();
    let mut runs = 0;
    while began.elapsed() < Duration::from_secs(1) {
        tokio::time::sleep(PAUSE).await;
        runs += 1;
    }
    f64::from(runs) / began.elapsed().as_secs_f64()
}
