//! What was found, for people to read.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::judge::Verdict;
use super::load::{Sent, latencies};
use super::plan::{POOR, Place, Plan};
use crate::say::{grouped, time};
use crate::shop::MOST_ATTEMPTS;

/// How many orders a line names.
const NAMED: usize = 6;

pub(crate) struct Report<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) sent: &'a Sent,
    pub(crate) verdict: &'a Verdict,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, verdict) = (self.sent, self.verdict);
        let users = grouped(self.plan.users().len() as u64);
        let orders = u64::from(self.plan.orders());
        line(
            f,
            "lost",
            &self.of(&verdict.lost, &format!("of {}", grouped(orders))),
        )?;
        line(f, "repeated", &self.repeated())?;
        let only = format!(
            "{}, of the {} that had started and were not known to be done",
            match verdict.outside.len() {
                0 => "no other".to_owned(),
                _ => format!("BUT ALSO {}", self.of(&verdict.outside, "others")),
            },
            grouped(verdict.could_repeat as u64)
        );
        line(f, "", &only)?;
        line(f, "paid twice", &self.of(&verdict.paid_twice, ""))?;
        line(
            f,
            "reordered",
            &self.of(&verdict.reordered, &format!("of {users} users")),
        )?;
        if !verdict.invented.is_empty() {
            line(f, "INVENTED", &format!("{:?}", verdict.invented))?;
        }
        line(f, "dead letters", &self.letters())?;
        let rate = |elapsed: Duration| grouped((orders as f64 / elapsed.as_secs_f64()) as u64);
        let (accepted, done) = (rate(sent.elapsed), rate(self.until_done()));
        line(
            f,
            "throughput",
            &format!(
                "{accepted} accepted a second, {done} done a second; the kill and the restart included"
            ),
        )?;
        line(f, "POST to 202", &percentiles(&sent.latencies))?;
        line(f, "POST to done", &percentiles(&self.until_paid()))?;
        line(
            f,
            "sent again",
            &format!(
                "{} times, for want of an answer; each is stored once",
                grouped(sent.resent)
            ),
        )
    }
}

impl Report<'_> {
    /// All that was started again, a line each.
    pub(crate) fn repeated_ids(&self) -> String {
        let mut lines = String::new();
        for (what, places) in [
            ("interrupted", &self.verdict.interrupted),
            ("done, not confirmed", &self.verdict.repeated),
        ] {
            for place in places {
                let _ = writeln!(lines, "{} {what}", self.plan.name(*place));
            }
        }
        lines
    }

    fn repeated(&self) -> String {
        let Verdict {
            interrupted,
            repeated,
            ..
        } = self.verdict;
        let all = grouped((interrupted.len() + repeated.len()) as u64);
        format!(
            "{all} started a second time:\n{INDENT}{}\n{INDENT}{}",
            self.of(interrupted, "interrupted"),
            self.of(repeated, "done, and not yet confirmed")
        )
    }

    fn letters(&self) -> String {
        let Verdict {
            dead,
            redriven,
            wrong_letters,
            ..
        } = self.verdict;
        let dead = format!("{dead}, of {POOR}, each after {MOST_ATTEMPTS} attempts");
        let redriven = format!("{redriven} of them redriven, and paid in order");
        if wrong_letters.is_empty() {
            return format!("{dead}; {redriven}");
        }
        format!("{dead}; WRONG: {}", self.of(wrong_letters, ""))
    }

    /// How many, and which.
    fn of(&self, places: &BTreeSet<Place>, what: &str) -> String {
        let mut text = grouped(places.len() as u64);
        if !what.is_empty() {
            let _ = write!(text, " {what}");
        }
        let names = places
            .iter()
            .take(NAMED)
            .map(|place| self.plan.name(*place));
        let names = names.collect::<Vec<_>>().join(", ");
        if places.is_empty() {
            return text;
        }
        let rest = places.len().saturating_sub(NAMED);
        let rest = match rest {
            0 => String::new(),
            _ => format!(" and {} more", grouped(rest as u64)),
        };
        format!("{text}: {names}{rest}")
    }

    /// From the first POST of an order to its payment, of the usual users.
    fn until_paid(&self) -> Histogram<u64> {
        let mut waits = latencies();
        for (place, paid_at) in &self.verdict.paid_at {
            if self.plan.user(*place).is_usual() {
                let posted_at = self.sent.posted_at[place.user as usize][place.number as usize];
                let wait = paid_at.saturating_sub(posted_at);
                waits.record(wait).expect("it grows as it must");
            }
        }
        waits
    }

    /// From the first POST to the last payment of a usual user.
    fn until_done(&self) -> Duration {
        let posted = self.sent.posted_at.iter().flatten();
        let first = posted.copied().min().unwrap_or_default();
        let usual = self.verdict.paid_at.iter();
        let usual = usual.filter(|(place, _)| self.plan.user(*place).is_usual());
        let last = usual.map(|(_, at)| *at).max().unwrap_or_default();
        Duration::from_micros(last.saturating_sub(first).max(1))
    }
}

const INDENT: &str = "                ";

fn line(f: &mut fmt::Formatter<'_>, name: &str, value: &str) -> fmt::Result {
    writeln!(f, "{name:<16}{value}")
}

fn percentiles(times: &Histogram<u64>) -> String {
    let at = |percentile| time(Duration::from_micros(times.value_at_percentile(percentile)));
    let max = time(Duration::from_micros(times.max()));
    format!("p50 {}, p99 {}, at most {max}", at(50.0), at(99.0))
}
