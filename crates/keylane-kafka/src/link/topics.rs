//! Topics that are created again under their name, found in the log lines of the client.
//!
//! In the log of a new topic the client goes on at its old position, if that log is long enough
//! (the FIXME at "changed id" in its `rdkafka_topic.c`). If the old topic had leaders of later
//! epochs, the client does not read the new one at all. It shows the ids of topics only in its log
//! lines.

use std::collections::{HashMap, VecDeque};

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

/// How many ids of a topic are remembered. A broker that is behind may report an old one.
const REMEMBERED: usize = 16;

/// The client writes the id of a topic that has none with this character alone.
const NO_ID: char = 'A';

/// Makes the client log the ids of topics.
pub(super) fn log_ids(client: &mut ClientConfig) {
    let logged = match client.get("debug") {
        Some(others) => format!("{others},metadata"),
        None => "metadata".to_owned(),
    };
    client.set("debug", logged);
    client.set_log_level(RDKafkaLogLevel::Debug);
}

/// The ids that topics have had, by name.
#[derive(Debug, Default)]
pub(crate) struct TopicIds(HashMap<String, VecDeque<String>>);

/// A topic with an id that it never had before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MadeAnew<'a> {
    pub(super) topic: &'a str,
    /// The client knows the old topic, and goes on with its state.
    pub(super) goes_on: bool,
}

impl TopicIds {
    /// Reads a line of a client's log.
    pub(super) fn hear<'a>(&mut self, line: &'a str) -> Option<MadeAnew<'a>> {
        let (topic, before, now) = changed(line)?;
        // A broker of an older version sends no id, and the client takes that for a change.
        let now = now?;
        let had = self.0.entry(topic.to_owned()).or_default();
        let goes_on = before.is_some();
        if let Some(before) = before {
            remember(had, before);
        }
        let is_first = had.is_empty();
        let is_new = remember(had, now);
        (is_new && !is_first).then_some(MadeAnew { topic, goes_on })
    }
}

/// Remembers an id. Returns whether it is new.
fn remember(had: &mut VecDeque<String>, id: &str) -> bool {
    let is_new = had.iter().all(|one| one != id);
    if is_new {
        had.truncate(REMEMBERED - 1);
        had.push_front(id.to_owned());
    }
    is_new
}

/// Parses `Topic NAME changed id from ID to ID`.
fn changed(line: &str) -> Option<(&str, Option<&str>, Option<&str>)> {
    let (topic, ids) = line.split_once(" changed id from ")?;
    let (_, topic) = topic.rsplit_once("Topic ")?;
    let (before, now) = ids.split_once(" to ")?;
    let is_id = |text: &str| text.trim_end_matches('=').chars().any(|one| one != NO_ID);
    Some((
        topic,
        is_id(before).then_some(before),
        is_id(now).then_some(now),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &str = "AAAAAAAAAAAAAAAAAAAAAA";

    /// Whether the client goes on in a topic that was created again. `None`: it was not.
    fn hear(ids: &mut TopicIds, before: &str, now: &str) -> Option<bool> {
        let line = format!("[thrd:main]: Topic orders.v-1_a changed id from {before} to {now}");
        let anew = ids.hear(&line)?;
        assert_eq!(anew.topic, "orders.v-1_a");
        Some(anew.goes_on)
    }

    #[test]
    fn a_topic_is_made_anew_when_it_has_an_id_that_it_never_had() {
        let (first, second, third) = ("mhvDV3VqQyCwP9RkyIwoOA", "AhvDV3VqQyCwP9RkyIwoOA", "x");
        let mut ids = TopicIds::default();
        assert_eq!(hear(&mut ids, NONE, first), None);
        assert_eq!(hear(&mut ids, first, second), Some(true));
        // Another client.
        assert_eq!(hear(&mut ids, NONE, second), None);
        assert_eq!(hear(&mut ids, NONE, third), Some(false));
        // A broker that is behind.
        assert_eq!(hear(&mut ids, third, second), None);
        assert_eq!(hear(&mut ids, second, third), None);
    }

    #[test]
    fn the_first_line_may_name_both() {
        assert_eq!(hear(&mut TopicIds::default(), "one", "two"), Some(true));
    }

    #[test]
    fn a_broker_that_knows_of_no_ids_changes_nothing() {
        let mut ids = TopicIds::default();
        assert_eq!(hear(&mut ids, NONE, "one"), None);
        assert_eq!(hear(&mut ids, "one", NONE), None);
        assert_eq!(hear(&mut ids, NONE, "one"), None);
        assert_eq!(hear(&mut ids, "one", &format!("{NONE}==")), None);
        assert_eq!(hear(&mut ids, NONE, "two"), Some(false));
    }

    #[test]
    fn so_many_ids_are_remembered() {
        let mut ids = TopicIds::default();
        for id in 0..100 {
            hear(&mut ids, NONE, &format!("id-{id}"));
        }
        assert_eq!(ids.0["orders.v-1_a"].len(), REMEMBERED);
        assert_eq!(hear(&mut ids, NONE, "id-99"), None);
    }

    #[test]
    fn other_lines_say_nothing() {
        for line in [
            "",
            "Topic orders [0] Leader 1 Epoch 0",
            " changed id from  to ",
            "x changed id from a to b",
        ] {
            assert_eq!(TopicIds::default().hear(line), None, "{line}");
        }
    }
}
