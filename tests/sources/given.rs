//! A source that hands over what a test has given it, in one go, and notes what it is told.

use std::sync::{Arc, Mutex};

use keylane::source::{
    Deliveries, Delivery, Features, Outcome, Received, Settlement, Source, SourceError,
    SourceLetter,
};

/// What became of the messages of a [`Given`], which are their own positions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<Notes>>);

#[derive(Debug, Default)]
struct Notes {
    settled: Vec<(u64, Outcome)>,
    letters: Vec<u64>,
    /// Letters that are refused, once each.
    refused: Vec<u64>,
    recalls: bool,
}

impl Told {
    pub(crate) fn settled(&self) -> Vec<(u64, Outcome)> {
        self.0.lock().unwrap().settled.clone()
    }

    pub(crate) fn outcome(&self, message: u64) -> Option<Outcome> {
        let settled = self.settled();
        let found = settled.iter().find(|(settled, _)| *settled == message);
        found.map(|(_, outcome)| *outcome)
    }

    /// The letters that were kept, in this order.
    pub(crate) fn letters(&self) -> Vec<u64> {
        self.0.lock().unwrap().letters.clone()
    }

    pub(crate) fn refuse_letter(&self, message: u64) {
        self.0.lock().unwrap().refused.push(message);
    }

    /// Has the source recall everything.
    pub(crate) fn recall(&self) {
        self.0.lock().unwrap().recalls = true;
    }
}

pub(crate) struct Given {
    features: Features,
    deliveries: Vec<Delivery<u64, u64>>,
    given: Vec<u64>,
    told: Told,
}

impl Given {
    /// Messages, each with the number of attempts before.
    pub(crate) fn new(
        features: Features,
        messages: impl IntoIterator<Item = (u64, u32)>,
    ) -> (Self, Told) {
        let told = Told::default();
        let deliveries = messages
            .into_iter()
            .map(|(message, attempts)| Delivery::new(message, message).attempts(attempts));
        let source = Self {
            features,
            deliveries: deliveries.collect(),
            given: Vec::new(),
            told: told.clone(),
        };
        (source, told)
    }
}

impl Source for Given {
    type Message = u64;
    type Position = u64;

    fn features(&self) -> Features {
        self.features
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<u64, u64>,
    ) -> Result<Received<u64>, SourceError> {
        if !self.deliveries.is_empty() {
            for delivery in self.deliveries.drain(..) {
                self.given.push(delivery.position);
                into.push(delivery);
            }
            return Ok(Received::Messages);
        }
        loop {
            if std::mem::take(&mut self.told.0.lock().unwrap().recalls) {
                return Ok(Received::Recalled(self.given.clone()));
            }
            if tokio::time::Instant::now() >= into.until() {
                return Ok(Received::Idle);
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    async fn settle(&mut self, settled: &[Settlement<u64>]) -> Result<(), SourceError> {
        let mut notes = self.told.0.lock().unwrap();
        let settled = settled.iter().map(|told| (told.position, told.outcome));
        notes.settled.extend(settled);
        Ok(())
    }

    async fn dead_letter(&mut self, letter: SourceLetter<u64>) -> Result<(), SourceError> {
        let mut notes = self.told.0.lock().unwrap();
        let is_refused = notes.refused.iter().position(|at| *at == letter.position);
        if let Some(at) = is_refused {
            notes.refused.remove(at);
            return Err(SourceError::failed("refused"));
        }
        notes.letters.push(letter.position);
        Ok(())
    }
}
