//! The sources and their parts, as lines.

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

use super::styles::{ALARM, NOTE};
use super::words::{is_cut, number, time, visible, words};
use crate::top::feed::{Hold, Part, Source};
use crate::top::state::State;

pub(super) fn lines(state: &State) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for source in &state.overview.intakes {
        lines.extend(one(source));
        lines.push(Line::default());
    }
    if lines.is_empty() {
        lines.push(Line::styled(" the console shows no sources", NOTE));
    }
    lines
}

fn one(it: &Source) -> Vec<Line<'_>> {
    let mut lines = vec![
        Line::from(vec![
            " ".into(),
            visible(&it.name).bold(),
            format!("  {}", words(&it.state)).into(),
        ]),
        figures([
            ("received", it.received),
            ("acked", it.acked),
            ("dead letters", it.dead_lettered),
        ]),
        figures([
            ("held", it.held),
            ("deferred", it.deferred),
            ("nacked", it.nacked),
        ]),
    ];
    if it.unconfirmed > 0 {
        let text = format!("   unconfirmed  {}", number(it.unconfirmed));
        lines.push(Line::raw(text));
    }
    lines.extend(it.hold.as_ref().map(hold));
    if it.restarts > 0 || it.last_error.is_some() {
        let why = it.last_error.as_deref().unwrap_or("no error is known");
        let text = format!("   restarts     {}: {}", number(it.restarts), visible(why));
        lines.push(Line::styled(text, ALARM));
    }
    for failed in &it.failed_parts {
        let (part, why) = (visible(&failed.part), visible(&failed.why));
        let text = format!("   {part} has failed {} times: {why}", number(failed.times));
        lines.push(Line::styled(text, ALARM));
    }
    lines.extend(it.parts.iter().flat_map(part));
    if it.other_parts > 0 {
        lines.push(Line::styled(
            format!("   and {} other parts", number(it.other_parts)),
            NOTE,
        ));
    }
    lines
}

/// Until when other processes do not get the messages.
fn hold(it: &Hold) -> Line<'static> {
    let lasts = time(it.lasts_ms);
    match it.left_ms {
        0 => Line::styled(
            format!("   held for {lasts}: over, other processes may have the messages"),
            ALARM,
        ),
        left => Line::raw(format!("   held for {lasts}: {} left", time(left))),
    }
}

fn figures(all: [(&str, u64); 3]) -> Line<'static> {
    let spans = all.map(|(name, value)| Span::raw(format!("   {name:<12} {:<10}", number(value))));
    Line::from(Vec::from(spans))
}

fn part(it: &Part) -> Vec<Line<'_>> {
    let known = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), number);
    let text = format!(
        "   {:<20} frontier {:<16} lag {:<10} held {}",
        visible(&it.name),
        it.frontier.as_deref().map_or_else(|| "-".into(), visible),
        known(it.lag),
        number(it.held)
    );
    let mut spans = vec![Span::raw(text)];
    if it.is_paused {
        spans.push("  paused".yellow());
    }
    if let Some(trouble) = &it.trouble {
        spans.push(Span::styled(format!("  {}", visible(trouble)), ALARM));
    }
    let mut lines = vec![Line::from(spans)];
    lines.extend(it.held_by.as_ref().map(|lane| {
        let (key, dispatcher) = (visible(&lane.key), visible(&lane.dispatcher));
        let more = match is_cut(&lane.key, lane.key_chars) {
            true => "…",
            false => "",
        };
        Line::raw(format!("     held back by {key}{more} of {dispatcher}"))
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(source: &str) -> String {
        let source: Source = serde_json::from_str(source).unwrap();
        let lines = one(&source);
        let lines = lines.iter().map(ToString::to_string);
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_part_has_its_frontier_as_its_system_writes_it() {
        let shown = text(
            r#"{"name":"a","parts":[{"name":"orders:0","frontier":"1700-3","lag":12,"held":2},
                {"name":"orders:1"}]}"#,
        );
        assert!(shown.contains("frontier 1700-3 "), "{shown}");
        assert!(shown.contains("frontier - "), "{shown}");
    }

    #[test]
    fn a_part_that_is_held_back_names_the_lane() {
        let shown = text(
            r#"{"name":"a","parts":[{"name":"orders:0","held_by":
                {"dispatcher":"orders","id":"1","key":"ann\u001b","key_chars":300}},{"name":"orders:1"}]}"#,
        );
        let named = r"     held back by ann\u{1b}… of orders";
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[lines.len() - 2], named, "{shown}");
        assert_eq!(shown.matches("held back").count(), 1, "{shown}");
    }

    #[test]
    fn a_hold_has_its_time_and_is_over_without_one() {
        let held = text(r#"{"name":"a","hold":{"lasts_ms":9000,"left_ms":6500},"unconfirmed":7}"#);
        assert!(held.contains("held for 9.0 s: 6.5 s left"), "{held}");
        assert!(held.contains("unconfirmed  7"), "{held}");
        let over = text(r#"{"name":"a","hold":{"lasts_ms":9000,"left_ms":0}}"#);
        assert!(over.contains("held for 9.0 s: over, other"), "{over}");
        let none = text(r#"{"name":"a"}"#);
        assert!(
            !none.contains("held for") && !none.contains("unconfirmed"),
            "{none}"
        );
    }
}
