//! The picture: a panel for each design, a row for each user, darker the longer it waited.

use std::time::Duration;

use crate::designs::Choice;
use crate::outcome::Outcome;
use crate::table::duration;
use crate::traffic::{SLOW, Traffic, User};
use examples::svg::{Anchor, Svg};

/// The scale: below so many milliseconds, and the name of the step. Each is about three times the one
/// before, so it is logarithmic.
const STEPS: [(f64, &str); 6] = [
    (10.0, "under 10 ms"),
    (30.0, "10 to 30 ms"),
    (100.0, "30 to 100 ms"),
    (300.0, "0.1 to 0.3 s"),
    (1_000.0, "0.3 to 1 s"),
    (f64::INFINITY, "over 1 s"),
];

/// Light to dark in even steps, which all kinds of colour blindness and a grey print leave alone.
const STYLE: &str = "\
    .ground{fill:#fff} .none{fill:#ececec} .frame{fill:none;stroke:#777} \
    .s0{fill:#fff1bd} .s1{fill:#fdc765} .s2{fill:#f4893f} .s3{fill:#cc4248} .s4{fill:#79206b} .s5{fill:#190b3d} \
    text{fill:#222;font-size:13px} .title{font-size:25px;font-weight:bold} .lead{font-size:15px} \
    .name{font-size:18px;font-weight:bold} .verdict{font-size:15px;font-weight:bold} \
    .small{font-size:12px} .bold{font-size:12px;font-weight:bold} \
    .line{fill:none;stroke:#222;stroke-width:1.5}";

const WIDTH: f64 = 1_260.0;
const HEAD: f64 = 146.0;
const PLOT: f64 = 440.0;
const LEFT: f64 = 66.0;
const PANEL: f64 = WIDTH / 2.0;
/// Above the plot of a panel: its name, its key, its verdict.
const ABOVE: f64 = 74.0;
/// Below it: the axis, and some air.
const BELOW: f64 = 66.0;

/// The picture as SVG.
pub(crate) fn draw(traffic: &Traffic, outcomes: &[Outcome]) -> String {
    let rows = traffic.rows();
    let plot = Plot {
        row: (320.0 / rows.len() as f64).clamp(1.0, 16.0),
        columns: (traffic.messages.len() / rows.len() / 3).clamp(4, 48),
        traffic,
        rows: &rows,
    };
    let panel = ABOVE + plot.height() + BELOW;
    let height = HEAD + panel * outcomes.len().div_ceil(2) as f64;
    let mut svg = Svg::new(WIDTH, height, STYLE);
    head(&mut svg, traffic);
    for (at, outcome) in outcomes.iter().enumerate() {
        let left = LEFT + PANEL * (at % 2) as f64;
        let top = HEAD + panel * (at / 2) as f64;
        svg.group(&format!("panel-{}", at + 1), |svg| {
            let name = format!("{}. {}", at + 1, outcome.choice.name());
            svg.text(left, top + 20.0, Anchor::Start, "name", &name);
            let key = outcome.choice.key(traffic);
            svg.text(left + PLOT, top + 20.0, Anchor::End, "text", &key);
            verdict(svg, outcome, left, top);
            plot.draw(svg, outcome, left, top + ABOVE);
        });
    }
    svg.finish()
}

fn verdict(svg: &mut Svg, outcome: &Outcome, left: f64, top: f64) {
    let others = outcome.waits_of_others();
    let p99 = format!(
        "99 % of what the others send waits {} at most",
        duration(others.p99)
    );
    svg.text(left, top + 43.0, Anchor::Start, "verdict", &p99);
    let (max, total) = (duration(others.max), duration(outcome.total));
    let rest = format!("their longest wait is {max}; everything is done after {total}");
    svg.text(left, top + 62.0, Anchor::Start, "text", &rest);
}

fn head(svg: &mut Svg, traffic: &Traffic) {
    let left = LEFT;
    svg.text(
        left,
        38.0,
        Anchor::Start,
        "title",
        "One user is slow. Who waits for it?",
    );
    let lead = format!(
        "{} users send for {} s, a row for each. User {SLOW} needs {} ms for each message, the others 1 or 2 ms.",
        traffic.users,
        traffic.length.as_secs_f64(),
        traffic.slow.as_millis(),
    );
    svg.text(left, 64.0, Anchor::Start, "lead", &lead);
    svg.text(
        left,
        104.0,
        Anchor::Start,
        "bold",
        "Longest wait, from when a",
    );
    svg.text(
        left,
        119.0,
        Anchor::Start,
        "bold",
        "message was due to its start:",
    );
    let names = STEPS.iter().map(|(_, name)| *name).chain(["nothing sent"]);
    for (at, name) in names.enumerate() {
        let x = left + 216.0 + 133.0 * at as f64;
        let class = if at < STEPS.len() {
            format!("s{at}")
        } else {
            "none".to_owned()
        };
        svg.rect(x, 96.0, 28.0, 24.0, &class);
        svg.rect(x, 96.0, 28.0, 24.0, "frame");
        svg.text(x + 34.0, 113.0, Anchor::Start, "text", name);
    }
}

/// What all panels have in common: the same rows, the same time.
struct Plot<'a> {
    traffic: &'a Traffic,
    rows: &'a [User],
    columns: usize,
    /// Height of a row.
    row: f64,
}

impl Plot<'_> {
    fn height(&self) -> f64 {
        self.row * self.rows.len() as f64
    }

    fn draw(&self, svg: &mut Svg, outcome: &Outcome, left: f64, top: f64) {
        svg.rect(left, top, PLOT, self.height(), "none");
        for (at, user) in self.rows.iter().enumerate() {
            let y = top + self.row * at as f64;
            let waits = outcome.waits(*user);
            let title = format!(
                "user {user}: p50 {}, p99 {}, at most {}",
                duration(waits.p50),
                duration(waits.p99),
                duration(waits.max)
            );
            svg.titled(&title, |svg| self.cells(svg, outcome, *user, left, y));
            self.row_name(svg, at, *user, left - 6.0, y + self.row / 2.0 + 4.0);
        }
        svg.rect(left, top, PLOT, self.height(), "frame");
        self.time_axis(svg, left, top + self.height());
        self.notes(svg, outcome.choice, left + PLOT + 6.0, top);
    }

    /// A row. Neighbours of one colour are one rectangle.
    fn cells(&self, svg: &mut Svg, outcome: &Outcome, user: User, left: f64, y: f64) {
        let mut longest: Vec<Option<Duration>> = vec![None; self.columns];
        for started in outcome.started(user) {
            let part = started.due.as_secs_f64() / self.traffic.length.as_secs_f64();
            let column = (part * self.columns as f64) as usize;
            let cell = &mut longest[column.min(self.columns - 1)];
            *cell = (*cell).max(Some(started.wait));
        }
        let steps: Vec<Option<usize>> = longest.into_iter().map(|wait| wait.map(step)).collect();
        let width = PLOT / self.columns as f64;
        let mut column = 0;
        for run in steps.chunk_by(|a, b| a == b) {
            if let Some(step) = run[0] {
                let x = left + width * column as f64;
                let class = format!("s{step}");
                svg.rect(x, y, width * run.len() as f64, self.row, &class);
            }
            column += run.len();
        }
    }

    /// Names stand beside their rows as long as they fit there.
    fn row_name(&self, svg: &mut Svg, at: usize, user: User, x: f64, y: f64) {
        if user == SLOW {
            svg.text(x, y, Anchor::End, "bold", &format!("user {user}"));
        } else if at.is_multiple_of((14.0 / self.row).ceil() as usize) {
            svg.text(x, y, Anchor::End, "small", &format!("user {user}"));
        }
    }

    fn time_axis(&self, svg: &mut Svg, left: f64, bottom: f64) {
        let length = self.traffic.length.as_secs_f64();
        // Five ticks or more, at round numbers.
        let every = [10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02];
        let every = every
            .into_iter()
            .find(|every| length / every >= 5.0)
            .unwrap_or(0.01);
        let mut tick = 0;
        while f64::from(tick) * every <= length + 1e-9 {
            let time = f64::from(tick) * every;
            let x = left + PLOT * time / length;
            svg.path(&format!("M{x:.1} {bottom:.1}v5"), "line");
            // As many decimals as the ticks need, and no more.
            let text = format!("{}", (time * 1e3).round() / 1e3);
            svg.text(x, bottom + 19.0, Anchor::Middle, "small", &text);
            tick += 1;
        }
        let name = "time at which the message was due (s)";
        svg.text(
            left + PLOT / 2.0,
            bottom + 38.0,
            Anchor::Middle,
            "text",
            name,
        );
    }

    /// On the right: which row is the slow one, and whose wait is a false conflict.
    fn notes(&self, svg: &mut Svg, choice: Choice, x: f64, top: f64) {
        let y = top + self.row / 2.0;
        svg.path(&format!("M{:.1} {:.1}l-6 -4v8z", x, y), "arrow");
        svg.text(x + 9.0, y + 4.0, Anchor::Start, "bold", "the slow user");
        let mates = self
            .rows
            .iter()
            .filter(|user| self.traffic.is_mate(**user))
            .count();
        if choice != Choice::Static || mates == 0 {
            return;
        }
        let (from, height) = (top + self.row + 2.0, self.row * mates as f64 - 4.0);
        svg.path(&format!("M{x:.1} {from:.1}h6v{height:.1}h-6"), "line");
        let middle = from + height / 2.0;
        for (at, text) in ["in its lane,", "so they wait"].into_iter().enumerate() {
            let y = middle + 14.0 * at as f64;
            svg.text(x + 12.0, y, Anchor::Start, "bold", text);
        }
    }
}

/// Which step of the scale a wait is on.
fn step(wait: Duration) -> usize {
    let ms = wait.as_secs_f64() * 1e3;
    let step = STEPS.iter().position(|(below, _)| ms < *below);
    step.expect("the last step has no end")
}
