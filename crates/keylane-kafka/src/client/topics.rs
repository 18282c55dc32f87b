//! Topics that are made anew under their name, as the client says it.
//!
//! In the log of a new topic the client goes on at its old position, if that log is long enough (the
//! FIXME at "changed id" in its `rdkafka_topic.c`). It shows the ids of topics nowhere but in what it
//! logs.

use std::collections::HashMap;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

/// Has the client log the ids of topics.
pub(super) fn log_ids(client: &mut ClientConfig) {
    let logged = match client.get("debug") {
        Some(others) => format!("{others},topic"),
        None => "topic".to_owned(),
    };
    client.set("debug", logged);
    client.set_log_level(RDKafkaLogLevel::Debug);
}

/// How the client writes the id of a topic that has none.
const NO_ID: char = 'A';

/// The ids of topics, by name.
#[derive(Debug, Default)]
pub(super) struct TopicIds(HashMap<String, String>);

impl TopicIds {
    /// Hears a line of the client. Returns the topic that has another id than before.
    pub(super) fn hear<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        let (topic, before, now) = changed(line)?;
        // A broker of an older version gives none, and the client takes that for a change.
        let now = now?;
        let known = self.0.insert(topic.to_owned(), now.to_owned());
        let before = known.as_deref().or(before)?;
        (before != now).then_some(topic)
    }
}

/// `Topic NAME changed id from ID to ID`.
fn changed(line: &str) -> Option<(&str, Option<&str>, Option<&str>)> {
    let (topic, ids) = line.split_once(" changed id from ")?;
    let (_, topic) = topic.rsplit_once("Topic ")?;
    let (before, now) = ids.split_once(" to ")?;
    let id = |text: &'_ str| text.trim_end_matches('=').chars().any(|one| one != NO_ID);
    Some((topic, id(before).then_some(before), id(now).then_some(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &str = "AAAAAAAAAAAAAAAAAAAAAA";

    fn hear(ids: &mut TopicIds, before: &str, now: &str) -> bool {
        let line = format!("[thrd:main]: Topic orders.v-1_a changed id from {before} to {now}");
        match ids.hear(&line) {
            Some(topic) => topic == "orders.v-1_a" || panic!("{topic}"),
            None => false,
        }
    }

    #[test]
    fn a_topic_is_made_anew_when_it_has_another_id() {
        let mut ids = TopicIds::default();
        assert!(!hear(&mut ids, NONE, "mhvDV3VqQyCwP9RkyIwoOA"));
        assert!(hear(
            &mut ids,
            "mhvDV3VqQyCwP9RkyIwoOA",
            "AhvDV3VqQyCwP9RkyIwoOA"
        ));
        // The client had forgotten the topic meanwhile.
        assert!(!hear(&mut ids, NONE, "AhvDV3VqQyCwP9RkyIwoOA"));
        assert!(hear(&mut ids, NONE, "mhvDV3VqQyCwP9RkyIwoOA"));
    }

    #[test]
    fn the_first_line_may_name_both() {
        assert!(hear(&mut TopicIds::default(), "one", "two"));
    }

    #[test]
    fn a_broker_that_knows_of_no_ids_changes_nothing() {
        let mut ids = TopicIds::default();
        assert!(!hear(&mut ids, NONE, "one"));
        assert!(!hear(&mut ids, "one", NONE));
        assert!(!hear(&mut ids, NONE, "one"));
        assert!(!hear(&mut ids, "one", &format!("{NONE}==")));
        assert!(hear(&mut ids, NONE, "two"));
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
