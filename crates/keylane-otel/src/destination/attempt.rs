//! The spans of attempts.

use std::time::{Instant, SystemTime};

use opentelemetry::trace::{Link, SpanBuilder, SpanKind, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue, StringValue};

use super::{Destination, Relation, attribute};
use crate::names::{AGE, ATTEMPT, BATCH_SIZE, KAFKA_OFFSET, MESSAGE_ID, PARTITION, WAITED};
use crate::origin::{HasOrigin, Origin};

const OPERATION: &str = "process";

impl Destination {
    /// Starts the span of an attempt, and returns the context for its handler. `None` if there are
    /// no spans.
    pub(super) fn attempt(&self, message: &impl HasOrigin, attempt: u32) -> Option<Context> {
        let tracer = self.tracer.as_ref()?;
        let origin = message.origin();
        let place = self.place(&origin);
        let name = match place {
            Some(place) if place.topic != self.name.as_str() => place.topic.to_owned().into(),
            _ => self.name.clone(),
        };
        let mut span = self.span(name, attempt);
        let attributes = span.attributes.get_or_insert_default();
        match place {
            Some(place) => {
                attributes.push(attribute(PARTITION, place.partition.to_owned()));
                attributes.push(attribute(KAFKA_OFFSET, place.offset));
            }
            None => attributes.extend(
                origin
                    .id
                    .as_deref()
                    .map(|id| attribute(MESSAGE_ID, text(id))),
            ),
        }
        attributes.extend(times(&origin));
        let creation = &origin.creation;
        span.links = creation
            .span_context()
            .map(|span| vec![Link::with_context(span.clone())]);
        let current = Context::current();
        let parent = match self.relation {
            Relation::Link => creation.baggage_in(&current),
            Relation::Parent => creation.all_in(&current),
        };
        let span = tracer.build_with_context(span, &parent);
        Some(parent.with_span(span))
    }

    /// Starts the span of an attempt at a batch.
    pub(super) fn batch_attempt(
        &self,
        origins: impl ExactSizeIterator<Item = Origin>,
        attempt: u32,
    ) -> Option<Context> {
        let tracer = self.tracer.as_ref()?;
        let mut span = self.span(self.name.clone(), attempt);
        let attributes = span.attributes.get_or_insert_default();
        attributes.push(attribute(BATCH_SIZE, whole(origins.len())));
        let links = origins.filter_map(|origin| {
            let span = origin.creation.span_context()?;
            Some(Link::with_context(span.clone()))
        });
        span.links = Some(links.collect());
        let current = Context::current();
        let span = tracer.build_with_context(span, &current);
        Some(current.with_span(span))
    }

    fn span(&self, name: StringValue, attempt: u32) -> SpanBuilder {
        let title = format!("{OPERATION} {name}");
        let mut attributes = self.attributes_of_consumer(OPERATION, name);
        attributes.push(attribute(ATTEMPT, i64::from(attempt)));
        SpanBuilder::from_name(title)
            .with_kind(SpanKind::Consumer)
            .with_attributes(attributes)
    }

    fn place<'a>(&self, origin: &'a Origin) -> Option<Place<'a>> {
        let is_kafka = self.system.as_str() == "kafka";
        is_kafka.then(|| Place::of(origin.id.as_deref()?)).flatten()
    }
}

pub(super) fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The place of a record, as `keylane-kafka` writes it into the id: `topic/partition@offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place<'a> {
    topic: &'a str,
    partition: &'a str,
    offset: i64,
}

impl<'a> Place<'a> {
    fn of(id: &'a [u8]) -> Option<Self> {
        let (partition, offset) = std::str::from_utf8(id).ok()?.split_once('@')?;
        let (topic, partition) = partition.rsplit_once('/')?;
        Some(Self {
            topic,
            partition,
            offset: offset.parse().ok()?,
        })
    }
}

/// How old the message is, and how long it has waited in this process, in seconds.
fn times(origin: &Origin) -> impl Iterator<Item = KeyValue> {
    let age = origin.enqueued_at.map(|at| {
        let age = SystemTime::now().duration_since(at).unwrap_or_default();
        attribute(AGE, age.as_secs_f64())
    });
    let waited = origin.decoded_at.map(|at| {
        let waited = Instant::now().saturating_duration_since(at);
        attribute(WAITED, waited.as_secs_f64())
    });
    age.into_iter().chain(waited)
}

/// An id as text.
fn text(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => {
            let digits = id.iter().map(|byte| format!("{byte:02x}"));
            digits.collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read() {
        let place = Place {
            topic: "a/b",
            partition: "3",
            offset: 1_200,
        };
        assert_eq!(Place::of(b"a/b/3@1200"), Some(place));
        for other in ["orders/1700-0", "orders@3", "orders/3@x", "\u{e9}", ""] {
            assert_eq!(Place::of(other.as_bytes()), None, "{other}");
        }
        assert_eq!(Place::of(b"\xff/3@1"), None);
    }

    #[test]
    fn an_id_is_text_or_digits() {
        assert_eq!(text(b"order-4711"), "order-4711");
        assert_eq!(text(b"\x00\xff"), "00ff");
        assert_eq!(text(b"a\x00"), "6100");
    }
}
