//! The dispatchers, the jobs over letters and the leaders, as lines.

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

use super::styles::{ALARM, NOTE};
use super::words::{lanes, micros, number, visible, words};
use crate::top::feed::{Election, Quantiles, Reasons, Store, Summary};
use crate::top::state::State;

pub(super) fn lines(state: &State) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for (which, it) in state.overview.dispatchers.iter().enumerate() {
        lines.extend(dispatcher(it, state.rates(which)));
        lines.push(Line::default());
    }
    lines.extend(state.overview.letters.iter().filter_map(job));
    lines.extend(state.overview.leaders.iter().map(leader));
    lines
}

fn dispatcher(it: &Summary, [accepted, done, failed]: [u64; 3]) -> Vec<Line<'_>> {
    let mut head = vec![" ".into(), visible(&it.name).bold()];
    if it.closed {
        head.push("  closed".yellow());
    }
    let given_up = it.dead_lettered + it.discarded + it.expired;
    let [usual, unusual] = reasons(it.reasons, it.concurrency_limit);
    vec![
        Line::from(head),
        Line::from(vec![
            rate("accepted", accepted, it.accepted),
            rate("done", done, it.done),
        ]),
        Line::from(vec![
            alarm(rate("failed", failed, it.failures), failed > 0),
            alarm(pair("given up", number(given_up)), given_up > 0),
        ]),
        Line::from(vec![
            pair(
                "waiting",
                format!("{} in {}", number(it.waiting), lanes(it.lanes)),
            ),
            alarm(pair("room", room(it)), it.capacity_left == 0),
        ]),
        Line::from(times("wait", it.times.wait)),
        Line::from(times("attempt", it.times.attempt)),
        usual,
        unusual,
    ]
}

fn room(it: &Summary) -> String {
    format!(
        "{} left, {} full",
        number(it.capacity_left),
        lanes(it.full_lanes)
    )
}

fn rate(name: &str, per_second: u64, all: u64) -> Span<'static> {
    let value = format!("{}/s, {} in all", number(per_second), number(all));
    pair(name, value)
}

/// Two of them fit beside each other.
fn pair(name: &str, value: String) -> Span<'static> {
    format!("   {name:<9} {value:<28}").into()
}

fn alarm(span: Span<'static>, is_alarm: bool) -> Span<'static> {
    match is_alarm {
        true => span.style(ALARM),
        false => span,
    }
}

fn times(name: &str, times: Option<Quantiles>) -> Span<'static> {
    let value = match times {
        None => "none in the last 10 s".to_owned(),
        Some(it) => format!(
            "50 % {:<9} 90 % {:<9} 99 % {:<9} most {}",
            micros(it.p50_us),
            micros(it.p90_us),
            micros(it.p99_us),
            micros(it.most_us)
        ),
    };
    format!("   {name:<9} {value}").into()
}

/// What the lanes wait for: what is usual, and what is not.
fn reasons(it: Reasons, most: u64) -> [Line<'static>; 2] {
    let usual = format!(
        "   lanes     {} of {} in flight, {} ready, {} backing off",
        number(it.in_flight),
        number(most),
        number(it.ready),
        number(it.backing_off)
    );
    let count = |count, name| Span::raw(format!("{} {name}", number(count)));
    let waits = [
        (it.for_rate, "for a rate"),
        (it.for_time, "for a time"),
        (it.for_batch, "for a batch"),
        (it.for_lease, "for a lease"),
        (it.for_store, "for the store"),
        (it.for_versions, "for versions"),
    ];
    let waits = waits.into_iter().filter(|(lanes, _)| *lanes > 0);
    let waits = waits.map(|(lanes, what)| count(lanes, what).content + ", ");
    let mut unusual = vec![
        "             ".into(),
        alarm(count(it.halted, "halted, "), it.halted > 0),
        alarm(count(it.paused, "paused, "), it.paused > 0),
    ];
    unusual.extend(waits.map(Span::raw));
    unusual.push(count(it.other, "for something else"));
    [Line::raw(usual), Line::from(unusual)]
}

fn job(store: &Store) -> Option<Line<'_>> {
    let job = store.job.as_ref()?;
    let text = format!(
        " letters {}: {}, {}: {} of {} seen",
        visible(&store.name),
        words(&job.action),
        words(&job.state),
        number(job.done),
        number(job.seen)
    );
    let why = match &*job.why {
        "" => String::new(),
        why => format!(": {}", visible(why)),
    };
    Some(Line::from(vec![text.into(), Span::styled(why, ALARM)]))
}

fn leader(it: &Election) -> Line<'_> {
    let leader = match &it.leader {
        Some(leader) if it.is_leaving => format!("{}, which is leaving", visible(leader)),
        Some(leader) => visible(leader),
        None => "none is known".to_owned(),
    };
    Line::from(vec![
        format!(" leader of {}: ", visible(&it.name)).into(),
        Span::styled(leader, if it.leader.is_none() { ALARM } else { NOTE }),
    ])
}
