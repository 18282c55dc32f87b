//! A layer that writes down all spans and events of keylane.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, SpanRef};
use tracing_subscriber::{Layer, Registry};

/// A span or an event: its name or message, and its fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) fields: Vec<(String, String)>,
    /// The name of the span around it.
    pub(crate) parent: Option<String>,
    /// How often it was entered, if it is a span.
    pub(crate) entered: usize,
    /// How often it was left.
    pub(crate) exited: usize,
    /// Whether its last handle is dropped.
    pub(crate) closed: bool,
}

impl Record {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| &value[..])
    }
}

impl Visit for Record {
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
    /// In the order in which they began.
    spans: Arc<Mutex<Vec<Record>>>,
    events: Arc<Mutex<Vec<Record>>>,
}

/// Where a span stands in [`Recorder::spans`]: the registry uses the ids of closed spans again.
struct Place(usize);

impl Recorder {
    /// A recorder that records what this thread does until the guard is dropped.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        let recorder = Self::default();
        let keylane = Targets::new().with_target("keylane", LevelFilter::TRACE);
        let layer = recorder.clone().with_filter(keylane);
        let guard = keylane_testkit::set_subscriber(Registry::default().with(layer));
        (recorder, guard)
    }

    pub(crate) fn spans(&self) -> Vec<Record> {
        self.spans.lock().unwrap().clone()
    }

    pub(crate) fn events(&self) -> Vec<Record> {
        self.events.lock().unwrap().clone()
    }

    /// All of it as one text, to search for what must not be there.
    pub(crate) fn text(&self) -> String {
        format!("{:?} {:?}", self.spans(), self.events())
    }

    fn change<S>(&self, span: Option<SpanRef<'_, S>>, change: impl FnOnce(&mut Record))
    where
        S: for<'a> LookupSpan<'a>,
    {
        let span = span.expect("the registry knows its spans");
        let extensions = span.extensions();
        let Place(place) = extensions.get().expect("every span has a place");
        change(&mut self.spans.lock().unwrap()[*place]);
    }
}

impl<S> Layer<S> for Recorder
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).expect("the registry knows its spans");
        let mut record = Record {
            name: attributes.metadata().name().to_owned(),
            parent: span.parent().map(|parent| parent.name().to_owned()),
            ..Record::default()
        };
        attributes.record(&mut record);
        let mut spans = self.spans.lock().unwrap();
        span.extensions_mut().insert(Place(spans.len()));
        spans.push(record);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut record = Record {
            parent: context.event_span(event).map(|span| span.name().to_owned()),
            ..Record::default()
        };
        event.record(&mut record);
        self.events.lock().unwrap().push(record);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        self.change(context.span(id), |record| record.entered += 1);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        self.change(context.span(id), |record| record.exited += 1);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        self.change(context.span(&id), |record| record.closed = true);
    }
}
