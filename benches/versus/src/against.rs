//! Another build of this program beside this one: old against new.
//!
//! Each measurement is a process of one program right behind one of the other, the first of them
//! another one each time. Ratios are those of such a pair, so what disturbs the machine for longer
//! than that disturbs both sides.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// One figure of both programs.
#[derive(Clone, Debug)]
pub struct Compared {
    /// What was measured, and of which contender.
    pub name: String,
    /// Of the other program: the median.
    pub old: f64,
    /// Of this program: the median.
    pub new: f64,
    /// New by old, by pair: the lower quartile, the median, the upper quartile.
    pub ratio: [f64; 3],
}

/// Both programs, and what they are asked.
#[derive(Debug)]
pub struct Pair {
    programs: [PathBuf; 2],
    arguments: Vec<String>,
    /// Where each writes its results.
    folders: [PathBuf; 2],
}

impl Pair {
    /// This program and the other one, which get the same arguments.
    ///
    /// # Errors
    ///
    /// If a folder for the results cannot be made.
    pub fn new(old: &Path, arguments: Vec<String>, out: &Path) -> Result<Self, Box<dyn Error>> {
        let folders = ["against/old", "against/new"].map(|folder| out.join(folder));
        for folder in &folders {
            fs::create_dir_all(folder)?;
        }
        Ok(Self {
            programs: [old.to_owned(), std::env::current_exe()?],
            arguments,
            folders,
        })
    }

    /// Measures what has this name so many times with each program.
    ///
    /// # Errors
    ///
    /// If one of the programs fails, for example because the old one knows nothing of this name.
    pub fn measure(&self, name: &str, rounds: usize) -> Result<Vec<Compared>, Box<dyn Error>> {
        let mut samples: BTreeMap<String, Vec<[f64; 2]>> = BTreeMap::new();
        for round in 0..rounds {
            let mut figures = [BTreeMap::new(), BTreeMap::new()];
            for side in [round % 2, 1 - round % 2] {
                figures[side] = self.run(side, name)?;
            }
            let [old, new] = figures;
            for (name, old) in old {
                if let Some(new) = new.get(&name) {
                    samples.entry(name).or_default().push([old, *new]);
                }
            }
        }
        Ok(samples.into_iter().map(compared).collect())
    }

    fn run(&self, side: usize, name: &str) -> Result<BTreeMap<String, f64>, Box<dyn Error>> {
        let (program, folder) = (&self.programs[side], &self.folders[side]);
        let mut command = Command::new(program);
        command.args(["--only", name]).args(&self.arguments);
        command.arg("--out").arg(folder);
        let output = command.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{name}, {}: {}", program.display(), said.trim()).into());
        }
        let results = fs::read(folder.join("versus.json"))?;
        Ok(figures(&serde_json::from_slice(&results)?))
    }
}

fn compared((name, samples): (String, Vec<[f64; 2]>)) -> Compared {
    let sorted = |of: fn(&[f64; 2]) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let at = |values: &[f64], quarter: usize| values[(values.len() - 1) * quarter / 4];
    let ratios = sorted(|[old, new]| new / old);
    Compared {
        name,
        old: at(&sorted(|[old, _]| *old), 2),
        new: at(&sorted(|[_, new]| *new), 2),
        ratio: [1, 2, 3].map(|quarter| at(&ratios, quarter)),
    }
}

/// The figures of one run, of which less is better.
fn figures(results: &Value) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    // A chapter of the file, the fields that name a row, the fields with its figures.
    let chapters: [(&str, &[&str], &[&str]); 7] = [
        (
            "rows",
            &["workload", "condition", "contender"],
            &["ns_per_message", "p99_ns"],
        ),
        (
            "disciplines",
            &["name", "keys"],
            &["ns_per_message", "ratio_to_fifo"],
        ),
        ("pull", &["queue", "parked"], &["nanos"]),
        ("tower", &["stack", "inner"], &["nanos"]),
        (
            "memory",
            &["contender"],
            &["live_lane_bytes", "in_flight_bytes", "in_flight_wide_bytes"],
        ),
        (
            "rate_keys",
            &["per_second"],
            &["ns_per_message", "peak_bytes", "lanes_after"],
        ),
        (
            "idle",
            &["dispatchers"],
            &["new_bytes", "used_bytes", "busy_ms_per_second", "drain_ms"],
        ),
    ];
    for (chapter, names, values) in chapters {
        let rows = results[chapter].as_array();
        for row in rows.into_iter().flatten() {
            // The rate of a measurement that was cut is not that of one that was not.
            if row["cut"].is_string() || row["cut"] == true {
                continue;
            }
            let named: Vec<String> = names.iter().filter_map(|name| text(&row[name])).collect();
            for value in values {
                if let Some(figure) = row[value].as_f64() {
                    figures.insert(format!("{chapter}: {}, {value}", named.join(", ")), figure);
                }
            }
        }
    }
    figures
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_found_by_name_and_cut_ones_are_left_out() {
        let row = |contender: &str, cut: Value| {
            json!({
                "workload": "empty/1k/1p", "condition": null, "contender": contender,
                "ns_per_message": 130.5, "p99_ns": null, "cut": cut,
            })
        };
        let found = figures(&json!({
            "rows": [row("keylane", Value::Null), row("spawn", json!("slow"))],
            "disciplines": [{ "name": "batch", "keys": 1000, "ns_per_message": 2.0, "cut": false }],
        }));
        let expected = [
            ("disciplines: batch, 1000, ns_per_message".to_owned(), 2.0),
            (
                "rows: empty/1k/1p, keylane, ns_per_message".to_owned(),
                130.5,
            ),
        ];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn ratios_are_those_of_pairs() {
        // The machine was busy in the second pair, for both.
        let samples = vec![[100.0, 110.0], [300.0, 330.0], [100.0, 110.0]];
        let compared = compared(("x".to_owned(), samples));
        assert_eq!((compared.old, compared.new), (100.0, 110.0));
        for ratio in compared.ratio {
            assert!((ratio - 1.1).abs() < 1e-9, "{ratio}");
        }
    }
}
