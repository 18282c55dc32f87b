//! The timeline and the terms in the terminal: pure.

use std::fmt;
use std::time::Duration;

use examples::say::{grouped, seconds};

use crate::plan::Fault;
use crate::story::Story;

/// How many columns the time has.
const COLUMNS: usize = 88;

/// How many columns the names have.
const NAMES: usize = 8;

const LEADS: char = '█';
const FOLLOWS: char = '·';
const PAUSED: char = '░';
const CUT: char = '╌';
const REFUSED: char = '!';

pub(crate) struct Chart<'a>(pub(crate) &'a Story);

impl Chart<'_> {
    fn column(&self, at: Duration) -> usize {
        let part = at.as_secs_f64() / self.0.end.as_secs_f64().max(1e-3);
        ((part * COLUMNS as f64) as usize).min(COLUMNS - 1)
    }

    /// The line of a process. What is written later covers what was there.
    fn row(&self, who: usize) -> String {
        let mut row = [FOLLOWS; COLUMNS];
        for mark in self.0.faults.iter().filter(|mark| mark.who == who) {
            let away = match mark.fault {
                Fault::Kill => ' ',
                Fault::Pause => PAUSED,
                Fault::Cut => CUT,
                Fault::Resign => continue,
            };
            row[self.column(mark.at)..=self.column(mark.until)].fill(away);
        }
        for term in self.0.terms.iter().filter(|term| term.who == who) {
            row[self.column(term.from)..=self.column(term.to)].fill(LEADS);
        }
        for (_, at) in self.0.refused.iter().filter(|(of, _)| *of == who) {
            row[self.column(*at)] = REFUSED;
        }
        for mark in self.0.faults.iter().filter(|mark| mark.who == who) {
            row[self.column(mark.at)] = mark.fault.letter();
        }
        row.iter().collect()
    }

    /// The seconds above the lines.
    fn axis(&self) -> String {
        let mut axis = String::new();
        for second in (0..).step_by(step(self.0.end)) {
            let at = Duration::from_secs(second);
            if at >= self.0.end {
                break;
            }
            let label = format!("{second} s");
            let column = self.column(at);
            if column + label.len() <= COLUMNS {
                axis = format!("{axis:<column$}{label}");
            }
        }
        axis
    }

    fn terms(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>4}  {:<14}{:<8}{:>8}{:>8}{:>7}{:>9}{:>9}  ended because",
            "term", "token", "leader", "from", "to", "bills", "refused", "gap"
        )?;
        for (at, term) in self.0.terms.iter().enumerate() {
            writeln!(
                f,
                "{:>4}  {:<14}{:<8}{:>8}{:>8}{:>7}{:>9}{:>9}  {}",
                at + 1,
                term.token,
                self.0.names[term.who],
                seconds(term.from),
                seconds(term.to),
                grouped(term.billed as u64),
                grouped(term.refused as u64),
                term.gap.map_or_else(|| "–".to_owned(), seconds),
                term.why,
            )?;
        }
        Ok(())
    }
}

/// How many seconds there are between two labels of a time axis.
pub(crate) fn step(end: Duration) -> usize {
    let fits = |step: &usize| end.as_secs_f64() / (*step as f64) <= 12.0;
    let steps = [1, 2, 5, 10, 30, 60, 300, 600, 3_600];
    steps.into_iter().find(fits).unwrap_or(7_200)
}

impl fmt::Display for Chart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:NAMES$}{}", "", self.axis())?;
        for (who, name) in self.0.names.iter().enumerate() {
            writeln!(f, "{name:<NAMES$}{}", self.row(who))?;
        }
        writeln!(
            f,
            "{:NAMES$}{LEADS} leads  {FOLLOWS} follows  {PAUSED} is paused  {CUT} is cut off  \
             {REFUSED} a late bill is refused",
            ""
        )?;
        writeln!(
            f,
            "{:NAMES$}K is killed  P is paused  C is cut off  R resigns\n",
            ""
        )?;
        self.terms(f)?;
        writeln!(
            f,
            "\ngap: from the fault, or the end of the term, to the first bill of a later term; up to 1.3 s\n\
             of it pass because a bill is due once a second, and takes 0.3 s"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::tests::story;

    #[test]
    fn a_line_shows_terms_faults_and_refused_bills() {
        let story = story();
        let chart = Chart(&story);
        // Eleven columns are a second.
        let anna = chart.row(0);
        let anna: Vec<char> = anna.chars().collect();
        let at = |seconds: f64| anna[(seconds * 11.0) as usize];
        let seen = [0.0, 1.0, 2.0, 3.0, 4.02, 5.0, 7.0].map(at);
        assert_eq!(seen, [FOLLOWS, LEADS, 'P', PAUSED, REFUSED, FOLLOWS, LEADS]);
        assert!(chart.row(1).contains('R') && !chart.row(1).contains('P'));
        assert_eq!(chart.row(2), FOLLOWS.to_string().repeat(COLUMNS));
    }

    #[test]
    fn each_term_has_a_row_with_its_gap() {
        let text = Chart(&story()).to_string();
        let rows = [
            "   1  5             anna       0.1 s   2.0 s      1        1    1.5 s  is paused (SIGSTOP)",
            "   2  8             bert       3.1 s   6.1 s      1        0    0.4 s  resigned",
            "   3  9             anna       6.2 s   8.0 s      1        0        –  the run has ended",
        ];
        for row in rows {
            assert!(text.contains(row), "without {row:?}:\n{text}");
        }
        assert!(
            text.contains("        0 s        1 s        2 s "),
            "{text}"
        );
    }

    #[test]
    fn the_axis_has_few_labels() {
        for (end, expected) in [(8, 1), (30, 5), (3_000, 300), (1_000_000, 7_200)] {
            assert_eq!(step(Duration::from_secs(end)), expected);
        }
    }
}
