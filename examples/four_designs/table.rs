//! What was found out, as text.

use std::fmt::Write as _;
use std::time::Duration;

use examples::say::grouped;

use crate::crowd::Crowd;
use crate::designs::Choice;
use crate::outcome::{Outcome, Waits};
use crate::traffic::{SLOW, Traffic, User};

/// How many of the users who waited longest are shown.
const WORST: usize = 5;

/// What is going to happen.
pub(crate) fn heading(traffic: &Traffic) -> String {
    let mates: Vec<String> = (1..=traffic.users)
        .filter(|user| traffic.is_mate(*user))
        .map(|user| user.to_string())
        .collect();
    format!(
        "{} users send {} messages in {} s, the same for each design.\n\
         User {SLOW} takes {} ms for each message, the others 1 or 2 ms.\n\
         With {} static lanes these share the lane of user {SLOW}: {}.\n",
        traffic.users,
        traffic.messages.len(),
        traffic.length.as_secs_f64(),
        traffic.slow.as_millis(),
        traffic.lanes,
        if mates.is_empty() {
            "no other user".to_owned()
        } else {
            mates.join(", ")
        },
    )
}

/// A row for each design.
pub(crate) fn summary(outcomes: &[Outcome]) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(outcomes.iter().map(row));
    let mut text = aligned(&rows);
    text.push_str(
        "others: all but the slow user; a wait is from the time a message was due to its start\n",
    );
    text
}

const COLUMNS: [&str; 7] = [
    "design",
    "total",
    "handled",
    "order breaks",
    "others wait: p50",
    "p99",
    "max",
];

fn row(outcome: &Outcome) -> [String; COLUMNS.len()] {
    let others = outcome.waits_of_others();
    [
        outcome.choice.name().to_owned(),
        duration(outcome.total),
        format!("{}/{}", outcome.handled, outcome.sent),
        outcome.breaks.to_string(),
        duration(others.p50),
        duration(others.p99),
        duration(others.max),
    ]
}

/// The users who waited longest, for each design.
pub(crate) fn worst(traffic: &Traffic, outcomes: &[Outcome]) -> String {
    let head = ["waited longest", "user", "", "p50", "p99", "max"];
    let mut rows = vec![head.map(str::to_owned)];
    for outcome in outcomes {
        for (at, (user, waits)) in outcome.worst().into_iter().take(WORST).enumerate() {
            let design = if at == 0 { outcome.choice.name() } else { "" };
            rows.push(user_row(
                [
                    design,
                    &user.to_string(),
                    note(traffic, outcome.choice, user),
                ],
                waits,
            ));
        }
    }
    aligned(&rows)
}

/// What is going to happen in the second part.
pub(crate) fn crowd_heading(users: User) -> String {
    let users = grouped(users);
    format!("Then {users} users send one message each, and are silent. What is kept of them?\n")
}

/// A row for each design.
pub(crate) fn crowds(crowds: &[Crowd]) -> String {
    let head = [
        "design",
        "total",
        "queues kept",
        "tasks kept",
        "memory kept",
        "for a user",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(crowds.iter().map(|crowd| {
        let kept = crowd.last();
        let unknown = || "unknown".to_owned();
        [
            crowd.choice.name().to_owned(),
            duration(crowd.took),
            grouped(kept.queues as u32),
            grouped(kept.tasks as u32),
            kept.bytes.map_or_else(unknown, mebibytes),
            kept.bytes.map_or_else(unknown, |bytes| {
                format!("{} B", bytes / u64::from(kept.users.max(1)))
            }),
        ]
    }));
    let mut text = aligned(&rows);
    text.push_str("kept: with nothing left to do; memory: of the process, beyond that before\n");
    text
}

/// Bytes with a unit.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn note(traffic: &Traffic, choice: Choice, user: User) -> &'static str {
    match (user, choice) {
        (SLOW, _) => "the slow one",
        (_, Choice::Static) if traffic.is_mate(user) => "in its lane",
        _ => "",
    }
}

fn user_row(names: [&str; 3], waits: Waits) -> [String; 6] {
    let [design, user, note] = names.map(str::to_owned);
    let [p50, p99, max] = [waits.p50, waits.p99, waits.max].map(duration);
    [design, user, note, p50, p99, max]
}

/// The first column to the left, all others to the right.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let _ = write!(text, "{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

/// Three digits and a unit.
pub(crate) fn duration(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    match ms {
        ..9.995 => format!("{ms:.2} ms"),
        ..99.95 => format!("{ms:.1} ms"),
        ..999.5 => format!("{ms:.0} ms"),
        ..9_995.0 => format!("{:.2} s", ms / 1e3),
        _ => format!("{:.1} s", ms / 1e3),
    }
}
