//! The second picture: the memory that each design keeps of silent users, as users come.

use examples::say::grouped;
use examples::svg::{Anchor, Svg};

use crate::crowd::Crowd;
use crate::table::mebibytes;

/// Lines differ in their dashes too, for grey prints and all kinds of colour blindness.
const STYLE: &str = "\
    .ground{fill:#fff} .frame{fill:none;stroke:#777} .grid{fill:none;stroke:#ddd} \
    .l0,.l1,.l2,.l3{fill:none;stroke-width:2.5} .l0{stroke:#777;stroke-dasharray:2 4} \
    .l1{stroke:#cc4248} .l2{stroke:#f4893f;stroke-dasharray:9 5} .l3{stroke:#2b6cb0} \
    text{fill:#222;font-size:13px} .title{font-size:25px;font-weight:bold} .lead{font-size:15px} \
    .small{font-size:12px} .name{font-size:14px;font-weight:bold}";

const WIDTH: f64 = 1_260.0;
const HEIGHT: f64 = 470.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 96.0;
const PLOT: (f64, f64) = (720.0, 300.0);

/// Names of lines that end close to each other are this far apart.
const APART: f64 = 40.0;

/// The picture as SVG.
pub(crate) fn draw(crowds: &[Crowd]) -> String {
    let users = crowds
        .iter()
        .map(|crowd| crowd.last().users)
        .max()
        .unwrap_or(1)
        .max(1);
    let points = crowds.iter().flat_map(|crowd| &crowd.kept);
    let most = points.filter_map(|kept| kept.bytes).max().unwrap_or(0);
    let scale = Scale {
        users: f64::from(users),
        bytes: top(most) as f64,
    };
    let title = "Users come, send one message, and are silent";
    let lead =
        "What each design keeps of them while there is nothing to do: the memory of the process";
    let mut svg = Svg::described(WIDTH, HEIGHT, STYLE, title, lead);
    svg.text(LEFT, 38.0, Anchor::Start, "title", title);
    svg.text(LEFT, 66.0, Anchor::Start, "lead", lead);
    scale.axes(&mut svg);
    for (at, crowd) in crowds.iter().enumerate() {
        svg.group(&format!("line-{}", at + 1), |svg| {
            scale.line(svg, at, crowd)
        });
    }
    names(&mut svg, &scale, crowds);
    svg.finish()
}

/// The top of the scale: a round number of bytes above these, in steps of a power of two.
fn top(most: u64) -> u64 {
    let step = (most / 4).max(1 << 20).next_power_of_two();
    most.div_ceil(step).max(1) * step
}

struct Scale {
    users: f64,
    bytes: f64,
}

impl Scale {
    fn x(&self, users: f64) -> f64 {
        LEFT + PLOT.0 * users / self.users
    }

    fn y(&self, bytes: f64) -> f64 {
        TOP + PLOT.1 * (1.0 - bytes / self.bytes)
    }

    fn axes(&self, svg: &mut Svg) {
        for part in 0..=4 {
            let part = f64::from(part) / 4.0;
            let y = self.y(self.bytes * part);
            svg.path(&format!("M{LEFT:.1} {y:.1}h{:.1}", PLOT.0), "grid");
            let bytes = mebibytes((self.bytes * part) as u64);
            svg.text(LEFT - 8.0, y + 4.0, Anchor::End, "small", &bytes);
            let x = self.x(self.users * part);
            let users = grouped((self.users * part) as u32);
            svg.text(x, TOP + PLOT.1 + 20.0, Anchor::Middle, "small", &users);
        }
        svg.rect(LEFT, TOP, PLOT.0, PLOT.1, "frame");
        let (x, y) = (LEFT + PLOT.0 / 2.0, TOP + PLOT.1 + 44.0);
        svg.text(x, y, Anchor::Middle, "text", "users so far");
    }

    fn line(&self, svg: &mut Svg, at: usize, crowd: &Crowd) {
        let mut path = format!("M{:.1} {:.1}", self.x(0.0), self.y(0.0));
        for kept in &crowd.kept {
            let bytes = kept.bytes.unwrap_or(0) as f64;
            path += &format!("L{:.1} {:.1}", self.x(f64::from(kept.users)), self.y(bytes));
        }
        svg.path(&path, &format!("l{at}"));
    }
}

/// A name beside the end of each line, with what is kept besides memory.
fn names(svg: &mut Svg, scale: &Scale, crowds: &[Crowd]) {
    let end = |crowd: &Crowd| scale.y(crowd.last().bytes.unwrap_or(0) as f64);
    let mut order: Vec<(usize, &Crowd)> = crowds.iter().enumerate().collect();
    order.sort_by(|(_, one), (_, other)| end(other).total_cmp(&end(one)));
    let mut below = TOP + PLOT.1 + APART;
    for (at, crowd) in order {
        let y = end(crowd).min(below - APART);
        below = y;
        let x = LEFT + PLOT.0 + 14.0;
        svg.path(&format!("M{x:.1} {y:.1}h34"), &format!("l{at}"));
        svg.text(
            x + 44.0,
            y + 1.0,
            Anchor::Start,
            "name",
            crowd.choice.name(),
        );
        let kept = crowd.last();
        let memory = kept.bytes.map_or("unknown memory".to_owned(), mebibytes);
        let (tasks, queues) = (grouped(kept.tasks as u32), grouped(kept.queues as u32));
        let text = format!("keeps {memory}, {tasks} tasks, {queues} queues");
        svg.text(x + 44.0, y + 17.0, Anchor::Start, "small", &text);
    }
}
