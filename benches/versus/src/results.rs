//! What all rounds together say.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::contenders::Id;
use crate::disciplines::Discipline;
use crate::footprint::Footprint;
use crate::idle::Idle;
use crate::keys::Keys;
use crate::latency::Latency;
use crate::measure::{Cut, Sample};
use crate::pull::Pull;
use crate::rate_keys::RateKeys;
use crate::source::Fed;
use crate::tower::Front;
use crate::work::Handler;
use crate::workload::{Shape, Workload};

/// Everything measured.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// One per workload, condition and contender, in the order of the list.
    pub rows: Vec<Row>,
    /// One per contender.
    pub footprints: Vec<Footprint>,
    /// One per rate.
    pub rate_keys: Vec<RateKeys>,
    /// One, if it was measured.
    pub idle: Vec<Idle>,
    /// One per pull queue and number of parked messages.
    pub pulls: Vec<Pull>,
    /// One per way in and number of keys.
    pub fed: Vec<Fed>,
    /// One per stack in front of a service.
    pub fronts: Vec<Front>,
    /// One per discipline and number of keys.
    pub disciplines: Vec<Discipline>,
}

/// One contender at one workload.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub workload: String,
    /// What it does.
    pub shape: Shape,
    /// One of the conditions of the workload, or empty where there is one only.
    pub condition: &'static str,
    /// Who.
    pub id: Id,
    /// By round; a contender that stalls is not asked again.
    pub samples: BTreeMap<usize, Sample>,
    /// Why there are none.
    pub unfit: Option<&'static str>,
}

/// One row, as the JSON file has it.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    workload: String,
    condition: Option<&'static str>,
    handler: Option<&'static str>,
    keys: Option<String>,
    producers: Option<u64>,
    contender: &'static str,
    keeps_order: bool,
    rounds: usize,
    messages: Option<u64>,
    messages_per_second: Option<f64>,
    ns_per_message: Option<f64>,
    ns_per_message_min: Option<f64>,
    ns_per_message_max: Option<f64>,
    /// Its rate, divided by that of `spawn`: more is better.
    ratio_to_spawn: Option<f64>,
    /// Its time, divided by that of the floor: less is better.
    ratio_to_floor: Option<f64>,
    order_breaks: Option<u64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    cut: Option<Cut>,
    not_applicable: Option<&'static str>,
}

impl Results {
    /// The row of this contender.
    pub fn row(&self, workload: &str, condition: &str, id: Id) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.workload == workload && row.condition == condition && row.id == id)
    }

    /// The rows of one workload and condition.
    pub fn rows_of<'a>(
        &'a self,
        workload: &'a str,
        condition: &'a str,
    ) -> impl Iterator<Item = &'a Row> {
        self.rows
            .iter()
            .filter(move |row| row.workload == workload && row.condition == condition)
    }

    /// The workloads there are rows of, in order, each with its shape.
    pub fn workloads(&self) -> Vec<(&str, Shape)> {
        let mut list: Vec<(&str, Shape)> = Vec::new();
        for row in &self.rows {
            if list.last().is_none_or(|(name, _)| *name != row.workload) {
                list.push((&row.workload, row.shape));
            }
        }
        list
    }

    /// The workloads of a series there are rows of, in order, each with its keys.
    pub fn series(&self, handler: Handler, producers: u64) -> Vec<(&str, Keys)> {
        let all = self.workloads().into_iter();
        all.filter_map(|(name, shape)| Some((name, shape.in_series(handler, producers)?)))
            .collect()
    }

    /// Adds the samples of one round.
    pub fn add(&mut self, workload: &Workload, id: Id, round: usize, samples: Vec<Sample>) {
        for (condition, sample) in workload.conditions().iter().zip(samples) {
            self.row_mut(workload, condition, id)
                .samples
                .insert(round, sample);
        }
    }

    /// Makes rows for what will be measured.
    pub fn add_waiting(&mut self, workload: &Workload, id: Id) {
        for condition in workload.conditions() {
            self.row_mut(workload, condition, id);
        }
    }

    /// Notes that this contender cannot do it.
    pub fn add_unfit(&mut self, workload: &Workload, id: Id, why: &'static str) {
        for condition in workload.conditions() {
            self.row_mut(workload, condition, id).unfit = Some(why);
        }
    }

    /// The worst that ended a measurement of this contender early.
    pub fn cut(&self, workload: &Workload, id: Id) -> Option<Cut> {
        self.rows
            .iter()
            .filter(|row| row.workload == workload.name && row.id == id)
            .filter_map(Row::cut)
            .max_by_key(|cut| *cut == Cut::Stalled)
    }

    /// A row's rate over that of spawn, in the same rounds.
    pub fn ratio_to_spawn(&self, row: &Row) -> Option<f64> {
        let spawn = self.row(&row.workload, row.condition, Id::Spawn)?;
        spawn.over(row, |sample| sample.ns_per_message)
    }

    /// A row's time over that of the floor, in the same rounds.
    pub fn ratio_to_floor(&self, row: &Row) -> Option<f64> {
        let floor = self.row(&row.workload, row.condition, Id::Floor)?;
        row.over(floor, |sample| sample.ns_per_message)
    }

    /// For the JSON file.
    pub fn records(&self) -> Vec<Record> {
        self.rows.iter().map(|row| self.record(row)).collect()
    }

    fn record(&self, row: &Row) -> Record {
        let (handler, keys, producers) = match row.shape {
            Shape::Throughput {
                handler,
                keys,
                producers,
                ..
            } => (Some(handler.label()), Some(keys.label()), Some(producers)),
            Shape::Set(_) => (Some("empty"), Some("1k".to_owned()), Some(1)),
            _ => (None, None, None),
        };
        let ns = row.ns();
        let latency = row.latency();
        Record {
            workload: row.workload.clone(),
            condition: (!row.condition.is_empty()).then_some(row.condition),
            handler,
            keys,
            producers,
            contender: row.id.name(),
            keeps_order: row.id.keeps_order(),
            rounds: row.samples.len(),
            messages: row.samples.values().map(|sample| sample.messages).max(),
            messages_per_second: ns.map(|ns| 1e9 / ns.median),
            ns_per_message: ns.map(|ns| ns.median),
            ns_per_message_min: ns.map(|ns| ns.min),
            ns_per_message_max: ns.map(|ns| ns.max),
            ratio_to_spawn: self.ratio_to_spawn(row),
            ratio_to_floor: self.ratio_to_floor(row),
            order_breaks: row.order_breaks(),
            p50_ns: latency.map(|latency| latency.p50),
            p99_ns: latency.map(|latency| latency.p99),
            p999_ns: latency.map(|latency| latency.p999),
            cut: row.cut(),
            not_applicable: row.unfit,
        }
    }

    fn row_mut(&mut self, workload: &Workload, condition: &'static str, id: Id) -> &mut Row {
        let found = self.rows.iter().position(|row| {
            row.workload == workload.name && row.condition == condition && row.id == id
        });
        let at = found.unwrap_or_else(|| {
            self.rows.push(Row {
                workload: workload.name.clone(),
                shape: workload.shape,
                condition,
                id,
                samples: BTreeMap::new(),
                unfit: None,
            });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }
}

/// A median and what lies around it.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// In the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Row {
    /// Nanoseconds per message; none where it stalled.
    pub fn ns(&self) -> Option<Spread> {
        if self.cut() == Some(Cut::Stalled) {
            return None;
        }
        spread(self.samples.values().map(|sample| sample.ns_per_message))
    }

    /// The median of each quantile.
    pub fn latency(&self) -> Option<Latency> {
        let of = |quantile: fn(Latency) -> u64| {
            let all = self.samples.values().filter_map(|sample| sample.latency);
            spread(all.map(|latency| quantile(latency) as f64)).map(|ns| ns.median as u64)
        };
        Some(Latency {
            p50: of(|latency| latency.p50)?,
            p99: of(|latency| latency.p99)?,
            p999: of(|latency| latency.p999)?,
        })
    }

    /// Order breaks of all rounds.
    pub fn order_breaks(&self) -> Option<u64> {
        if self.samples.is_empty() {
            return None;
        }
        Some(
            self.samples
                .values()
                .map(|sample| sample.order_breaks)
                .sum(),
        )
    }

    /// The worst that ended one of its measurements early.
    pub fn cut(&self) -> Option<Cut> {
        let mut cuts = self.samples.values().filter_map(|sample| sample.cut);
        let first = cuts.next()?;
        Some(if cuts.any(|cut| cut == Cut::Stalled) {
            Cut::Stalled
        } else {
            first
        })
    }

    /// The median, over the rounds both have, of one's value divided by the other's.
    pub fn over(&self, other: &Row, value: impl Fn(&Sample) -> f64) -> Option<f64> {
        if self.cut() == Some(Cut::Stalled) || other.cut() == Some(Cut::Stalled) {
            return None;
        }
        let ratios = self
            .samples
            .iter()
            .filter_map(|(round, sample)| Some(value(sample) / value(other.samples.get(round)?)));
        spread(ratios).map(|ratio| ratio.median)
    }
}

fn spread(values: impl Iterator<Item = f64>) -> Option<Spread> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    };
    Some(Spread { median, min, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let spread = spread([4.0, 1.0, 2.0, 3.0].into_iter()).expect("there are values");
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let sample = |ns| Sample {
            messages: 1,
            ns_per_message: ns,
            order_breaks: 0,
            latency: None,
            cut: None,
        };
        let row = |id, ns: [f64; 3]| Row {
            workload: "w".to_owned(),
            shape: Shape::InFlight,
            condition: "",
            id,
            samples: ns.into_iter().map(sample).enumerate().collect(),
            unfit: None,
        };
        // The machine was twice as slow in the second round, for both.
        let one = row(Id::Spawn, [300.0, 600.0, 330.0]);
        let other = row(Id::Floor, [100.0, 200.0, 110.0]);
        assert_eq!(one.over(&other, |sample| sample.ns_per_message), Some(3.0));
    }
}
