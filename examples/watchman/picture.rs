//! The timeline and the terms as an SVG: pure.

use std::time::Duration;

use examples::say::seconds;
use examples::svg::{Anchor, Svg, escaped};

use crate::chart::step;
use crate::plan::Fault;
use crate::story::{Mark, Story, Tenure};

const WIDTH: f64 = 1_040.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 28.0;

/// The top of the first line, its height, and the distance to the next one.
const TOP: f64 = 132.0;
const BAR: f64 = 26.0;
const LINE: f64 = 74.0;

/// How long a span must be to have a label.
const SHORTEST: f64 = 16.0;

/// The height of a row of the table.
const ROW: f64 = 21.0;

/// Light, and dark where the reader prefers it.
const STYLE: &str = "
.ground{fill:#fff}.text{fill:#1f2328;font-size:13px}.small{fill:#59636e;font-size:12px}
.head{fill:#1f2328;font-size:20px;font-weight:bold}.name{fill:#1f2328;font-size:14px;font-weight:bold}
.number{fill:#fff;font-size:12px;font-weight:bold}.grid{stroke:#d1d9e0;fill:none}
.follows{stroke:#afb8c1;stroke-width:2;fill:none}.p0{fill:#0969da}.p1{fill:#8250df}.p2{fill:#1a7f37}
.dead{fill:#fff;stroke:#cf222e;stroke-dasharray:2 3}.paused{fill:#eac54f}.cut{fill:#fb8f44}
.gap{stroke:#cf222e;stroke-width:2;fill:none}.mark{fill:#cf222e}.letter{fill:#fff;font-size:11px;font-weight:bold}
.refused{stroke:#cf222e;stroke-width:2;fill:none}.red{fill:#cf222e;font-size:12px}
@media (prefers-color-scheme:dark){.ground{fill:#0d1117}.text,.head,.name{fill:#f0f6fc}.small{fill:#9198a1}
.grid{stroke:#3d444d}.follows{stroke:#656c76}.p0{fill:#4493f8}.p1{fill:#ab7df8}.p2{fill:#3fb950}.number{fill:#0d1117}
.dead{fill:#0d1117;stroke:#f85149}.gap,.refused{stroke:#f85149}.mark{fill:#f85149}.letter{fill:#0d1117}.red{fill:#f85149}}
";

/// Returns the picture. `verdict` is what was found.
pub(crate) fn picture(story: &Story, verdict: &str) -> String {
    let table = line(story.names.len()) + 62.0;
    let height = table + 4.0 + ROW * (story.terms.len() as f64 + 1.0) + 20.0;
    let text = format!("{} {}", described(story), escaped(verdict));
    let mut svg = Svg::described(WIDTH, height, STYLE, "Who led when", &text);
    let head = "One leader bills every account once a second";
    svg.text(28.0, 38.0, Anchor::Start, "head", head);
    svg.text(28.0, 62.0, Anchor::Start, "small", &escaped(verdict));
    let scale = Scale(story.end);
    axis(&mut svg, story, scale);
    for (who, name) in story.names.iter().enumerate() {
        process(&mut svg, story, scale, who, name);
    }
    legend(&mut svg, line(story.names.len()) - 2.0);
    terms(&mut svg, story, table);
    svg.finish()
}

/// Where a time is.
#[derive(Clone, Copy)]
struct Scale(Duration);

impl Scale {
    fn x(self, at: Duration) -> f64 {
        let part = at.as_secs_f64() / self.0.as_secs_f64().max(1e-3);
        LEFT + (RIGHT - LEFT) * part.min(1.0)
    }
}

/// The top of the line of a process.
fn line(who: usize) -> f64 {
    TOP + LINE * who as f64
}

/// What a screen reader says instead of the picture.
fn described(story: &Story) -> String {
    let terms = story.terms.iter().map(|term| {
        let (from, to) = (seconds(term.from), seconds(term.to));
        let name = &story.names[term.who];
        format!("{name} led from {from} to {to}: {}.", escaped(&term.why))
    });
    terms.collect::<Vec<_>>().join(" ")
}

fn axis(svg: &mut Svg, story: &Story, scale: Scale) {
    let bottom = line(story.names.len()) - LINE + BAR + 16.0;
    for second in (0..).step_by(step(story.end)) {
        let at = Duration::from_secs(second);
        if at > story.end {
            return;
        }
        let x = scale.x(at);
        svg.path(&format!("M{x:.1} {:.1}V{bottom:.1}", TOP - 30.0), "grid");
        let label = format!("{second} s");
        svg.text(x, TOP - 36.0, Anchor::Middle, "small", &label);
    }
}

fn process(svg: &mut Svg, story: &Story, scale: Scale, who: usize, name: &str) {
    let top = line(who);
    let middle = top + BAR / 2.0;
    svg.text(LEFT - 16.0, middle + 5.0, Anchor::End, "name", name);
    svg.path(&format!("M{LEFT} {middle}H{RIGHT}"), "follows");
    let marks = || story.faults.iter().filter(|mark| mark.who == who);
    marks().for_each(|mark| away(svg, scale, top, mark));
    for (at, term) in story.terms.iter().enumerate() {
        if term.who == who {
            tenure(svg, scale, top, at + 1, term);
        }
    }
    for (_, at) in story.refused.iter().filter(|(of, _)| *of == who) {
        let x = scale.x(*at);
        let (up, down) = (top - 3.0, top + BAR + 3.0);
        svg.titled("the store has refused a late bill", |svg| {
            svg.path(&format!("M{x:.1} {up:.1}V{down:.1}"), "refused");
        });
    }
    marks().for_each(|mark| fault(svg, scale, top, mark));
}

/// How long a process was not there, or not heard.
fn away(svg: &mut Svg, scale: Scale, top: f64, mark: &Mark) {
    let class = match mark.fault {
        Fault::Kill => "dead",
        Fault::Pause => "paused",
        Fault::Cut => "cut",
        Fault::Resign => return,
    };
    let (from, to) = (scale.x(mark.at), scale.x(mark.until));
    svg.rect(from, top + 6.0, to - from, BAR - 12.0, class);
}

fn tenure(svg: &mut Svg, scale: Scale, top: f64, number: usize, term: &Tenure) {
    let (from, to) = (scale.x(term.from), scale.x(term.to));
    let class = format!("p{}", term.who % 3);
    let (token, why) = (term.token, escaped(&term.why));
    svg.titled(&format!("term {number}, token {token}: {why}"), |svg| {
        svg.rect(from, top, (to - from).max(2.0), BAR, &class);
        if to - from > SHORTEST {
            let (x, y) = (f64::midpoint(from, to), top + 17.5);
            svg.text(x, y, Anchor::Middle, "number", &number.to_string());
        }
    });
}

/// The letter of a fault, and how long there was no bill after it.
fn fault(svg: &mut Svg, scale: Scale, top: f64, mark: &Mark) {
    let (x, y) = (scale.x(mark.at), top - 12.0);
    svg.titled(mark.fault.name(), |svg| {
        svg.path(
            &format!("M{x:.1} {:.1}V{:.1}", y + 8.0, top + BAR),
            "refused",
        );
        svg.rect(x - 7.0, y - 8.0, 14.0, 15.0, "mark");
        let letter = mark.fault.letter().to_string();
        svg.text(x, y + 3.5, Anchor::Middle, "letter", &letter);
    });
    let Some(bill) = mark.bill else {
        return;
    };
    let (to, below) = (scale.x(bill), top + BAR + 9.0);
    svg.path(&format!("M{x:.1} {0:.1}v6H{to:.1}v-6", below - 3.0), "gap");
    let gap = seconds(bill.saturating_sub(mark.at));
    // In a long run it would cover the next one.
    if to - x > SHORTEST {
        svg.text(to + 5.0, below + 7.0, Anchor::Start, "red", &gap);
    }
}

fn legend(svg: &mut Svg, y: f64) {
    let mut x = LEFT;
    for (class, text, width) in [
        ("p0", "leads", 80.0),
        ("dead", "is not running", 130.0),
        ("paused", "is paused", 105.0),
        ("cut", "is cut off", 105.0),
    ] {
        svg.rect(x, y - 10.0, 18.0, 12.0, class);
        svg.text(x + 25.0, y, Anchor::Start, "small", text);
        x += width;
    }
    svg.path(&format!("M{} {}V{}", x + 4.0, y - 12.0, y + 4.0), "refused");
    svg.text(
        x + 12.0,
        y,
        Anchor::Start,
        "small",
        "a late bill is refused",
    );
    svg.path(&format!("M{} {}v6h18v-6", x + 160.0, y - 9.0), "gap");
    let gap = "no bill: from the fault to the next term's first one";
    svg.text(x + 186.0, y, Anchor::Start, "small", gap);
    let letters = "K: is killed · P: is paused · C: is cut off · R: resigns";
    svg.text(LEFT, y + 20.0, Anchor::Start, "small", letters);
}

/// Where each column of the table is: its left end, or its right one if it has numbers.
const COLUMNS: [(f64, Anchor, &str); 9] = [
    (60.0, Anchor::End, "term"),
    (84.0, Anchor::Start, "token"),
    (180.0, Anchor::Start, "leader"),
    (300.0, Anchor::End, "from"),
    (370.0, Anchor::End, "to"),
    (440.0, Anchor::End, "bills"),
    (520.0, Anchor::End, "refused"),
    (590.0, Anchor::End, "gap"),
    (620.0, Anchor::Start, "ended because"),
];

/// The most letters of a reason.
const LONGEST: usize = 62;

fn terms(svg: &mut Svg, story: &Story, top: f64) {
    for (x, anchor, name) in COLUMNS {
        svg.text(x, top, anchor, "small", name);
    }
    for (at, term) in story.terms.iter().enumerate() {
        let y = top + 4.0 + ROW * (at as f64 + 1.0);
        let mut why: String = term.why.chars().take(LONGEST).collect();
        if why.len() < term.why.len() {
            why.push('…');
        }
        let cells = [
            (at + 1).to_string(),
            term.token.to_string(),
            story.names[term.who].clone(),
            seconds(term.from),
            seconds(term.to),
            term.billed.to_string(),
            term.refused.to_string(),
            term.gap.map_or_else(|| "–".to_owned(), seconds),
            why,
        ];
        for ((x, anchor, _), cell) in COLUMNS.into_iter().zip(cells) {
            svg.text(x, y, anchor, "text", &escaped(&cell));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::tests::story;

    #[test]
    fn the_picture_has_each_term_and_fault_and_says_what_it_shows() {
        let mut story = story();
        story.terms[1].why = "a < b & c".to_owned();
        let svg = picture(&story, "all is well");
        let parts = [
            "role=\"img\"",
            "<title id=\"title\">Who led when</title>",
            "anna led from 0.1 s to 2.0 s: is paused (SIGSTOP).",
            "term 3, token 9: the run has ended",
            "<title>the store has refused a late bill</title>",
            "<title>is paused (SIGSTOP)</title>",
            "<title>resigns</title>",
            ">1.5 s</text>",
            "a &lt; b &amp; c",
            "prefers-color-scheme:dark",
        ];
        for part in parts {
            assert!(svg.contains(part), "without {part:?}: {svg}");
        }
        assert_eq!(
            svg.matches("class=\"paused\"").count(),
            2,
            "one, and one in the legend"
        );
        assert!(!svg.contains("a < b") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn what_is_longer_goes_further() {
        let scale = Scale(Duration::from_secs(8));
        assert_eq!(scale.x(Duration::ZERO), LEFT);
        assert_eq!(scale.x(Duration::from_secs(4)), f64::midpoint(LEFT, RIGHT));
        assert_eq!(scale.x(Duration::from_secs(9)), RIGHT);
    }
}
