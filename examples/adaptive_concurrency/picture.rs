//! The picture: by hand, because it is a few lines and a plotting library is a long build.

use std::fmt::{self, Display, Write};
use std::time::Duration;

/// What was seen at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) seconds: f64,
    pub(crate) limit: usize,
    /// Zero where no call ended.
    pub(crate) latency_ms: f64,
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 24.0;
const HEIGHT: f64 = 600.0;

const LIMIT: &str = "#1668c4";
const PLACES: &str = "#d9480f";
const LATENCY: &str = "#5f3dc4";

pub(crate) struct Picture<'a> {
    points: &'a [Point],
    /// When the service has how many places; the end comes last.
    changes: &'a [(f64, usize)],
    call_ms: f64,
}

/// One of the two diagrams: where it is, and how high it goes.
struct Panel {
    top: f64,
    bottom: f64,
    most: f64,
    step: f64,
}

impl Panel {
    fn y(&self, value: f64) -> f64 {
        let value = value.min(self.most);
        self.bottom - (self.bottom - self.top) * value / self.most
    }

    /// Lines across, with their values; the unit stands above.
    fn grid(&self, unit: &str, svg: &mut String) -> fmt::Result {
        writeln!(
            svg,
            r##"<text x="{LEFT}" y="{}" class="title">{unit}</text>"##,
            self.top - 12.0
        )?;
        let mut value = 0.0;
        while value <= self.most {
            let y = self.y(value);
            writeln!(
                svg,
                r##"<path d="M{LEFT} {y:.1}H{RIGHT}" class="grid"/><text x="{}" y="{:.1}" class="left">{value}</text>"##,
                LEFT - 8.0,
                y + 4.0
            )?;
            value += self.step;
        }
        Ok(())
    }
}

impl<'a> Picture<'a> {
    pub(crate) fn new(points: &'a [Point], changes: &'a [(f64, usize)], call: Duration) -> Self {
        let call_ms = call.as_secs_f64() * 1e3;
        Self {
            points,
            changes,
            call_ms,
        }
    }

    fn end(&self) -> f64 {
        self.changes.last().map_or(1.0, |(at, _)| *at)
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (seconds / self.end()).min(1.0)
    }

    fn draw(&self, svg: &mut String) -> fmt::Result {
        let highest = self.points.iter().map(|point| point.limit).max();
        let most = (highest.unwrap_or(1) as f64 / 4.0).ceil() * 4.0;
        let limits = Panel {
            top: 112.0,
            bottom: 380.0,
            most: most.max(20.0),
            step: 4.0,
        };
        let slowest = self.points.iter().map(|point| point.latency_ms);
        let slowest = slowest.fold(0.0, f64::max);
        let latencies = Panel {
            top: 440.0,
            bottom: 550.0,
            most: (slowest / self.call_ms / 2.0).ceil().max(2.0) * 2.0 * self.call_ms,
            step: 2.0 * self.call_ms,
        };
        writeln!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13">
<style>.grid{{stroke:#e3e6ea}}.title{{fill:#333;font-weight:bold}}.left{{fill:#666;text-anchor:end}}.middle{{fill:#666;text-anchor:middle}}.change{{stroke:#999;stroke-dasharray:3 4}}.halo{{paint-order:stroke;stroke:white;stroke-width:5px;stroke-linejoin:round}}</style>
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="34" font-size="20" font-weight="bold">The limit finds what the service can do without being told</text>
<text x="{LEFT}" y="58" fill="#555">Always more to do than can be done. In the short dips the limit is halved, to see how long an attempt takes without a queue.</text>
<path d="M470 92h30" stroke="{LIMIT}" stroke-width="2"/><text x="508" y="96" fill="{LIMIT}" font-weight="bold">keylane's limit</text>
<path d="M640 92h30" stroke="{PLACES}" stroke-width="4" stroke-opacity="0.75"/><text x="678" y="96" fill="{PLACES}" font-weight="bold">what the service can do at once</text>"##
        )?;
        limits.grid("handlers at once", svg)?;
        latencies.grid(
            &format!(
                "latency of an attempt, ms ({} without a queue)",
                self.call_ms
            ),
            svg,
        )?;
        self.places(&limits, &latencies, svg)?;
        self.limit(&limits, svg)?;
        self.numbers(&limits, svg)?;
        self.latency(&latencies, svg)?;
        for second in 0..=self.end() as u32 {
            writeln!(
                svg,
                r##"<text x="{:.1}" y="{}" class="middle">{second} s</text>"##,
                self.x(f64::from(second)),
                latencies.bottom + 20.0
            )?;
        }
        svg.push_str("</svg>\n");
        Ok(())
    }

    /// What the service can do, as steps, and when it changes.
    fn places(&self, limits: &Panel, latencies: &Panel, svg: &mut String) -> fmt::Result {
        let mut path = String::new();
        for pair in self.changes.windows(2) {
            let ((from, places), (to, _)) = (pair[0], pair[1]);
            let y = limits.y(places as f64);
            let verb = if path.is_empty() { 'M' } else { 'L' };
            write!(path, "{verb}{:.1} {y:.1}H{:.1}", self.x(from), self.x(to))?;
            if from > 0.0 {
                writeln!(
                    svg,
                    r##"<path d="M{0:.1} {1}V{2}" class="change"/>"##,
                    self.x(from),
                    limits.top,
                    latencies.bottom
                )?;
            }
        }
        writeln!(
            svg,
            r##"<path d="{path}" fill="none" stroke="{PLACES}" stroke-width="4" stroke-opacity="0.75"/>"##
        )
    }

    /// How many places there are, each number at the end of its step and over all lines.
    fn numbers(&self, panel: &Panel, svg: &mut String) -> fmt::Result {
        for pair in self.changes.windows(2) {
            let ((_, places), (to, _)) = (pair[0], pair[1]);
            writeln!(
                svg,
                r##"<text x="{:.1}" y="{:.1}" text-anchor="end" fill="{PLACES}" font-size="17" font-weight="bold" class="halo">{places}</text>"##,
                self.x(to) - 10.0,
                panel.y(places as f64) + 22.0
            )?;
        }
        Ok(())
    }

    fn limit(&self, panel: &Panel, svg: &mut String) -> fmt::Result {
        let mut path = String::new();
        for point in self.points {
            let (x, y) = (self.x(point.seconds), panel.y(point.limit as f64));
            if path.is_empty() {
                write!(path, "M{x:.1} {y:.1}")?;
            } else {
                write!(path, "H{x:.1}V{y:.1}")?;
            }
        }
        writeln!(
            svg,
            r##"<path d="{path}" fill="none" stroke="{LIMIT}" stroke-width="2"/>"##
        )
    }

    fn latency(&self, panel: &Panel, svg: &mut String) -> fmt::Result {
        let mut path = String::new();
        for point in self.points.iter().filter(|point| point.latency_ms > 0.0) {
            let verb = if path.is_empty() { 'M' } else { 'L' };
            let (x, y) = (self.x(point.seconds), panel.y(point.latency_ms));
            write!(path, "{verb}{x:.1} {y:.1}")?;
        }
        writeln!(
            svg,
            r##"<path d="{path}" fill="none" stroke="{LATENCY}" stroke-width="1.5"/>"##
        )
    }
}

impl Display for Picture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut svg = String::new();
        self.draw(&mut svg)?;
        f.write_str(&svg)
    }
}
