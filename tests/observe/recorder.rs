//! A subscriber that writes down all that it is told.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A span or an event: its name or message, and its fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) fields: Vec<(String, String)>,
    /// How often it was entered, if it is a span.
    pub(crate) entered: usize,
}

impl Told {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| &value[..])
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        if field.name() == "message" {
            self.name = value;
        } else {
            self.fields.push((field.name().to_owned(), value));
        }
    }
}

/// Everything with the target `keylane`.
#[derive(Clone, Default)]
pub(crate) struct Recorder {
    spans: Arc<Mutex<Vec<Told>>>,
    events: Arc<Mutex<Vec<Told>>>,
}

impl Recorder {
    pub(crate) fn spans(&self) -> Vec<Told> {
        self.spans.lock().unwrap().clone()
    }

    pub(crate) fn events(&self) -> Vec<Told> {
        self.events.lock().unwrap().clone()
    }

    /// All of it as one text, to search for what must not be there.
    pub(crate) fn text(&self) -> String {
        format!("{:?} {:?}", self.spans(), self.events())
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "keylane"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut told = Told {
            name: attributes.metadata().name().to_owned(),
            ..Told::default()
        };
        attributes.record(&mut told);
        let mut spans = self.spans.lock().unwrap();
        spans.push(told);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut told = Told::default();
        event.record(&mut told);
        self.events.lock().unwrap().push(told);
    }

    fn enter(&self, span: &Id) {
        self.spans.lock().unwrap()[span.into_u64() as usize - 1].entered += 1;
    }

    fn exit(&self, _: &Id) {}
}
