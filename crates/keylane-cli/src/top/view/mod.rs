//! The state as a screen. Pure.

mod help;

mod lanes;

mod overview;

mod sources;

mod styles;

mod words;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::state::{Link, Page, State};
use styles::{ALARM, NOTE};
use words::{time, visible};

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(head_line(state), head);
    frame.render_widget(tab_line(state), tabs);
    match state.page {
        _ if state.shows_help => frame.render_widget(Paragraph::new(help::lines()), body),
        Page::Overview => scrolled(frame, overview::lines(state), state.scrolled, body),
        Page::Lanes => lanes::draw(frame, state, body),
        Page::Sources => scrolled(frame, sources::lines(state), state.scrolled, body),
    }
    frame.render_widget(foot_line(state), foot);
}

/// The address, and whether what is shown is of now.
fn head_line(state: &State) -> Line<'_> {
    let mut spans = vec![
        " keylane top ".bold(),
        state.url.as_str().into(),
        "  ".into(),
    ];
    match &state.link {
        Link::Opening => spans.push("connecting".into()),
        Link::Live => {
            let up = format!("live, up for {}", time(state.overview.up_ms));
            spans.push(Span::styled(up, Color::Green));
            if state.has_restarted {
                spans.push("  it has started again".yellow());
            }
        }
        Link::Lost(why) => {
            spans.push(Span::styled("lost, trying again: ", ALARM));
            spans.push(Span::styled(visible(why), ALARM));
        }
    }
    Line::from(spans)
}

fn tab_line(state: &State) -> Line<'_> {
    let mut spans = Vec::new();
    for (number, (page, name)) in (1..).zip(Page::ALL) {
        let tab = format!(" {number} {name} ");
        spans.push(match page == state.page {
            true => tab.reversed(),
            false => tab.into(),
        });
    }
    if state.page == Page::Lanes {
        let name = state.dispatcher_name().unwrap_or_default();
        let all = words::lanes(state.lanes.all);
        spans.push(format!("  {}: {all}, by {}", visible(&name), state.sort.name()).into());
    }
    Line::from(spans)
}

fn foot_line(state: &State) -> Line<'_> {
    if let Some(typed) = &state.typed {
        let hint = Span::styled("   enter finds its lane, esc gives up", NOTE);
        return Line::from(vec![
            " key: ".bold(),
            visible(typed).into(),
            "_".into(),
            hint,
        ]);
    }
    let keys = match state.page {
        Page::Lanes => " q quit  ? help  tab page  s sort  d dispatcher  / search a key  ↑↓ lane",
        _ => " q quit  ? help  tab page  / search a key  ↑↓ scroll",
    };
    Line::styled(keys, NOTE)
}

/// A page of lines. It is never scrolled beyond its last lines.
fn scrolled(frame: &mut Frame<'_>, lines: Vec<Line<'_>>, first: usize, area: Rect) {
    let most = lines.len().saturating_sub(usize::from(area.height));
    let first = u16::try_from(first.min(most)).unwrap_or(u16::MAX);
    frame.render_widget(Paragraph::new(lines).scroll((first, 0)), area);
}
