//! Pictures: time against key count, latency beside a blocked or hot key, bytes.

use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::contenders::Id;
use crate::footprint::Footprint;
use crate::number::number;
use crate::results::{Results, Row};
use crate::work::Handler;
use crate::workload;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const INK: RGBColor = RGBColor(40, 40, 40);
const PALE: RGBColor = RGBColor(225, 225, 225);

/// Draws what there are figures for; returns the files.
///
/// # Errors
///
/// When a file cannot be written.
pub fn draw(results: &Results, folder: &Path) -> Result<Vec<PathBuf>, Box<dyn std::error::Error>> {
    let mut files = Vec::new();
    for (handler, producers) in workload::series() {
        let lines = Lines::of(results, handler, producers);
        if lines.keys.len() < 2 {
            continue;
        }
        let file = folder.join(format!("{}-{producers}p.svg", handler.label()));
        lines.draw(&file)?;
        files.push(file);
    }
    for (workload, condition, title) in [
        (
            "blocked-latency",
            "blocked",
            "p99 of 10,000 keys, without and with a blocked key",
        ),
        (
            "hot-latency",
            "hot",
            "p99 of 2,000 cold keys, without and with a hot backlog",
        ),
    ] {
        let bars = latency_bars(results, workload, condition, title);
        if !bars.groups.is_empty() {
            let file = folder.join(format!("{workload}.svg"));
            bars.draw(&file)?;
            files.push(file);
        }
    }
    let bars = byte_bars(&results.footprints);
    if !bars.groups.is_empty() {
        let file = folder.join("bytes-in-flight.svg");
        bars.draw(&file)?;
        files.push(file);
    }
    Ok(files)
}

/// Time per message against key count: a line per contender, both axes logarithmic. All distinct
/// stands to the right of the counts, and Zipf, which is no count at all, apart from the line.
struct Lines {
    title: String,
    keys: Vec<String>,
    lines: Vec<(Id, Vec<(f64, f64)>)>,
}

impl Lines {
    fn of(results: &Results, wanted: Handler, by: u64) -> Self {
        let columns = results.series(wanted, by);
        let lines = Id::ALL
            .iter()
            .map(|id| {
                let points = columns
                    .iter()
                    .enumerate()
                    .filter_map(|(i, (name, _))| {
                        let ns = results.row(name, "", *id)?.ns()?;
                        Some((i as f64, ns.median))
                    })
                    .collect();
                (*id, points)
            })
            .filter(|(_, points): &(Id, Vec<_>)| !points.is_empty())
            .collect();
        let plural = if by == 1 { "" } else { "s" };
        Self {
            title: format!(
                "Time per message: {} handler, {by} producer{plural}",
                wanted.label()
            ),
            keys: columns.iter().map(|(_, keys)| keys.label()).collect(),
            lines,
        }
    }

    fn draw(&self, file: &Path) -> Drawn {
        let root = SVGBackend::new(file, (1_000, 620)).into_drawing_area();
        root.fill(&WHITE)?;
        let (left, right) = root.split_horizontally(810);
        let values = || {
            self.lines
                .iter()
                .flat_map(|(_, points)| points)
                .map(|(_, ns)| *ns)
        };
        let least = values().fold(f64::INFINITY, f64::min) / 1.5;
        let most = values().fold(0.0, f64::max) * 1.5;
        let mut chart = ChartBuilder::on(&left)
            .caption(&self.title, ink(20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(Places(&self.keys), (least..most).log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(PALE)
            .x_desc("keys")
            .y_desc("ns per message")
            .y_label_formatter(&|ns| number(*ns).replace(".0", ""))
            .label_style(ink(14))
            .draw()?;
        for (id, points) in &self.lines {
            let style = style(*id);
            for pair in points.windows(2) {
                // A contender that skips a key count has no line there.
                let next = pair[1].0 - pair[0].0 < 1.5;
                if next
                    && self
                        .keys
                        .get(pair[1].0 as usize)
                        .is_none_or(|keys| keys != "zipf")
                {
                    chart.draw_series(LineSeries::new(pair.iter().copied(), style))?;
                }
            }
            chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, style.filled())))?;
        }
        legend(
            &right,
            self.lines
                .iter()
                .map(|(id, points)| (*id, points.last().copied())),
        )?;
        root.present()?;
        Ok(())
    }
}

/// The key counts at equal distances: they are powers, so the axis is logarithmic.
#[derive(Clone, Copy)]
struct Places<'a>(&'a [String]);

impl Ranged for Places<'_> {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let steps = self.0.len() as f64;
        let share = (value + 0.5) / steps;
        limit.0 + (share * f64::from(limit.1 - limit.0)) as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.0.len()).map(|i| i as f64).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        -0.5..self.0.len() as f64 - 0.5
    }
}

impl ValueFormatter<f64> for Places<'_> {
    fn format_ext(&self, value: &f64) -> String {
        self.0
            .get(value.round() as usize)
            .cloned()
            .unwrap_or_default()
    }
}

/// The slowest at the last key count first, as the lines end.
fn legend(area: &Area<'_>, lines: impl Iterator<Item = (Id, Option<(f64, f64)>)>) -> Drawn {
    let mut entries: Vec<(Id, f64)> = lines
        .map(|(id, last)| (id, last.map_or(0.0, |(_, ns)| ns)))
        .collect();
    entries.sort_by(|one, other| other.1.total_cmp(&one.1));
    for (i, (id, _)) in entries.into_iter().enumerate() {
        let y = 60 + 26 * i as i32;
        let style = style(id);
        area.draw(&PathElement::new(vec![(0, y), (22, y)], style))?;
        area.draw(&Circle::new((11, y), 3, style.filled()))?;
        area.draw(&Text::new(id.name(), (30, y - 7), ink(14)))?;
    }
    Ok(())
}

/// Two bars per contender, on a logarithmic axis.
struct Bars {
    title: String,
    unit: &'static str,
    names: [&'static str; 2],
    groups: Vec<Group>,
}

struct Group {
    name: String,
    ours: bool,
    bars: [Option<f64>; 2],
    /// Written in place of the second bar, where there is none.
    excuse: &'static str,
}

fn latency_bars(results: &Results, workload: &str, condition: &'static str, title: &str) -> Bars {
    let p99 = |row: &Row| row.latency().map(|latency| latency.p99 as f64 / 1_000.0);
    let groups = results
        .rows_of(workload, "calm")
        .filter(|row| row.unfit.is_none())
        .map(|calm| {
            let after = results.row(workload, condition, calm.id);
            let stuck = after.is_none_or(|row| row.cut().is_some());
            Group {
                name: calm.id.name().to_owned(),
                ours: calm.id.is_keylane(),
                bars: [p99(calm), after.filter(|_| !stuck).and_then(p99)],
                excuse: "never ends",
            }
        })
        .collect();
    Bars {
        title: title.to_owned(),
        unit: "µs from the intended time",
        names: ["calm", condition],
        groups,
    }
}

fn byte_bars(footprints: &[Footprint]) -> Bars {
    let groups = footprints
        .iter()
        .filter(|print| print.in_flight_bytes.is_some())
        .map(|print| Group {
            name: print.contender.clone(),
            ours: print.contender.starts_with("keylane"),
            bars: [print.in_flight_bytes, print.in_flight_wide_bytes],
            excuse: "",
        })
        .collect();
    Bars {
        title: "Bytes per handler in flight".to_owned(),
        unit: "bytes",
        names: ["tiny handler", "handler of 1 KiB"],
        groups,
    }
}

impl Bars {
    fn draw(&self, file: &Path) -> Drawn {
        const ROW: i32 = 44;
        const FIRST: i32 = 84;
        const FROM: i32 = 170;
        const TO: i32 = 880;
        let height = FIRST + ROW * self.groups.len() as i32 + 50;
        let root = SVGBackend::new(file, (1_000, height as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw(&Text::new(self.title.as_str(), (20, 18), ink(20)))?;

        let values = || self.groups.iter().flat_map(|group| group.bars).flatten();
        let least = values().fold(f64::INFINITY, f64::min).log10().floor();
        let most = values().fold(1.0, f64::max).log10().ceil().max(least + 1.0);
        let x = |value: f64| {
            let share = (value.log10() - least) / (most - least);
            FROM + (share * f64::from(TO - FROM)) as i32
        };
        let bottom = FIRST + ROW * self.groups.len() as i32;
        for power in least as i32..=most as i32 {
            let value = 10_f64.powi(power);
            root.draw(&PathElement::new(
                vec![(x(value), FIRST - 8), (x(value), bottom)],
                PALE,
            ))?;
            let centred = ink(13);
            let centred = centred.pos(Pos::new(HPos::Center, VPos::Top));
            root.draw(&Text::new(
                number(value).replace(".00", ""),
                (x(value), bottom + 6),
                centred,
            ))?;
        }
        root.draw(&Text::new(self.unit, (FROM, bottom + 26), ink(14)))?;
        let dark = [RGBColor(150, 170, 195), RGBColor(66, 104, 155)];
        let ours = [RGBColor(235, 170, 130), RGBColor(208, 74, 2)];
        for (i, name) in self.names.iter().enumerate() {
            let left = FROM + 180 * i as i32;
            for (colours, shift) in [(dark, 0), (ours, 16)] {
                let corners = [(left + shift, 52), (left + shift + 12, 64)];
                root.draw(&Rectangle::new(corners, colours[i].filled()))?;
            }
            root.draw(&Text::new(*name, (left + 36, 51), ink(14)))?;
        }
        for (i, group) in self.groups.iter().enumerate() {
            let top = FIRST + ROW * i as i32;
            let right = ink(14);
            let right = right.pos(Pos::new(HPos::Right, VPos::Center));
            root.draw(&Text::new(
                group.name.as_str(),
                (FROM - 10, top + 18),
                right,
            ))?;
            let colours = if group.ours { ours } else { dark };
            for (half, value) in group.bars.iter().enumerate() {
                let y = top + 18 * half as i32;
                let (end, label) = match value {
                    Some(value) => {
                        let corners = [(FROM, y), (x(*value), y + 16)];
                        root.draw(&Rectangle::new(corners, colours[half].filled()))?;
                        (x(*value), number(*value))
                    }
                    None => (FROM, group.excuse.to_owned()),
                };
                root.draw(&Text::new(label, (end + 6, y + 1), ink(13)))?;
            }
        }
        root.present()?;
        Ok(())
    }
}

fn ink(size: i32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).color(&INK)
}

/// Ours stand out, the controls stand back.
fn style(id: Id) -> ShapeStyle {
    let (red, green, blue) = match id {
        Id::Floor => (60, 60, 60),
        Id::FloorMany => (150, 150, 150),
        Id::Spawn => (0, 0, 0),
        Id::StaticHash => (31, 119, 180),
        Id::PerKey => (44, 160, 44),
        Id::KeyedLock => (148, 103, 189),
        Id::Kameo => (140, 86, 75),
        Id::Ractor => (227, 119, 194),
        Id::Grommet => (23, 160, 180),
        Id::FutureQueue => (170, 170, 30),
        Id::Keylane => (214, 39, 40),
        Id::KeylaneSubmit => (255, 127, 14),
        Id::KeylaneStriped => (150, 0, 90),
        Id::KeylaneStripedSubmit => (230, 90, 160),
        Id::KeylaneFull => (240, 120, 120),
        Id::KeylaneFoldhash => (160, 20, 60),
    };
    let colour = RGBColor(red, green, blue);
    colour.stroke_width(if id == Id::Keylane { 4 } else { 2 })
}
