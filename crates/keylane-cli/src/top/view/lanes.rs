//! The lanes: a table, and the lane with the cursor in full.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, TableState, Wrap};

use super::styles::{ALARM, NOTE};
use super::words::{is_cut, number, time, visible, words};
use crate::top::feed::Lane;
use crate::top::state::State;

/// Lines of the lane with the cursor.
const DETAIL: u16 = 4;

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let [table, detail] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(DETAIL)]).areas(area);
    let lanes = state.rows();
    let cursor = state.cursor_in(&lanes);
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(12),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Fill(3),
    ];
    let head = Row::new(["key", "state", "depth", "age", "busy", "reason"]).bold();
    let rows = Table::new(lanes.iter().map(|lane| row(lane)), widths)
        .header(head)
        .row_highlight_style(Style::new().reversed());
    let mut place = TableState::default();
    place.select((!lanes.is_empty()).then_some(cursor));
    frame.render_stateful_widget(rows, table, &mut place);
    let mut lines = found(state);
    match lanes.get(cursor) {
        Some(lane) => lines.extend(whole(lane)),
        None => lines.push(Line::styled(" no lane has a message", NOTE)),
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), detail);
}

fn row(lane: &Lane) -> Row<'static> {
    let reason = match &*lane.why {
        "" => &lane.ends,
        why => why,
    };
    let full = if lane.full { "*" } else { "" };
    let row = Row::new([
        visible(&lane.key),
        words(&lane.state),
        number(lane.depth) + full,
        time(lane.age_ms),
        time(lane.busy_ms),
        visible(reason),
    ]);
    row.style(style(&lane.state))
}

fn style(state: &str) -> Style {
    match state {
        "halted" | "paused" | "gap" => ALARM,
        "backoff" | "dead_lettering" | "rate_limited" => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

/// A search that has found nothing yet, or nothing at all.
fn found(state: &State) -> Vec<Line<'_>> {
    let Some(search) = &state.search else {
        return Vec::new();
    };
    let line = match &search.found {
        Some(Ok(_)) => return Vec::new(),
        Some(Err(why)) => Line::styled(
            format!(" {}: {}", visible(&search.key), visible(why)),
            ALARM,
        ),
        None => Line::styled(format!(" {}: searching", visible(&search.key)), NOTE),
    };
    vec![line]
}

/// What the table has no room for.
fn whole(lane: &Lane) -> Vec<Line<'static>> {
    let cut = match is_cut(&lane.key, lane.key_chars) {
        true => format!("… {} characters", number(lane.key_chars as u64)),
        false => String::new(),
    };
    let mut what = vec![
        Span::styled(format!(" {}", words(&lane.state)), style(&lane.state)),
        format!(" until {}", visible(&lane.ends)).into(),
    ];
    let due = lane.due_ms.map(|ms| format!(" in {}", time(ms)));
    let ran = lane.ran_ms.map(|ms| format!(", for {}", time(ms)));
    let attempt = lane.attempt.map(|number| format!(", attempt {number}"));
    what.extend([due, attempt, ran].into_iter().flatten().map(Span::from));
    let mut lines = vec![
        Line::from(vec![" ".into(), visible(&lane.key).bold(), cut.into()]),
        Line::from(what),
    ];
    if !lane.why.is_empty() {
        lines.push(Line::raw(format!(" {}", visible(&lane.why))));
    }
    lines
}
