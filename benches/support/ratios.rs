//! The table at the end: each bench, divided by its floor.

use std::fmt;

/// What was measured, in the order in which it came.
#[derive(Default)]
pub(crate) struct Ratios(Vec<Row>);

struct Row {
    /// The runtime.
    on: &'static str,
    name: &'static str,
    samples: Vec<Sample>,
}

/// Nanoseconds per message.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) path: f64,
    /// Of the floor, in the same moment: a machine that is busy is busy for both.
    pub(crate) floor: f64,
}

impl Ratios {
    pub(crate) fn record(&mut self, on: &'static str, name: &'static str, sample: Sample) {
        let row = self
            .0
            .iter_mut()
            .find(|row| row.on == on && row.name == name);
        match row {
            Some(row) => row.samples.push(sample),
            None => self.0.push(Row {
                on,
                name,
                samples: vec![sample],
            }),
        }
    }
}

impl Row {
    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        let mut values: Vec<f64> = self.samples.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }
}

impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut on = "";
        for row in &self.0 {
            if row.on != on {
                on = row.on;
                writeln!(f, "\n{on:<30} {:>9} {:>9} {:>9}", "ns", "floor", "× floor")?;
            }
            let path = row.median(|sample| sample.path);
            let floor = row.median(|sample| sample.floor);
            let ratio = row.median(|sample| sample.path / sample.floor);
            writeln!(f, "{:<30} {path:>9.1} {floor:>9.1} {ratio:>9.2}", row.name)?;
        }
        Ok(())
    }
}
