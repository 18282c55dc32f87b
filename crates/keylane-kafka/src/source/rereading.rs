//! Reading records again that were deferred.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use keylane::source::{Deliveries, Delivery, RawMessage, SourceError};
use rdkafka::error::KafkaResult;

use super::{KafkaSource, blocking};
use crate::assignment::Position;
use crate::client::Reader;
use crate::record::Copier;

impl KafkaSource {
    pub(super) async fn read_again(
        &mut self,
        positions: &[Position],
        into: &mut Deliveries<RawMessage, Position>,
    ) -> Result<(), SourceError> {
        let mut wanted: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for position in positions {
            let open = self.assignment.of(position);
            if open.is_some_and(|one| one.partition.is_open(position.offset)) {
                let offsets = wanted.entry(position.slot).or_default();
                offsets.insert(position.offset);
            }
        }
        let places: Vec<_> = wanted
            .into_iter()
            .filter_map(|(slot, offsets)| {
                let one = self.assignment.get_mut(slot)?;
                let (topic, name) = (one.topic.clone(), one.queue.name.clone());
                Some((slot, topic, one.number, name, offsets))
            })
            .collect();
        let mut reader = self.take_reader()?;
        let keyless = self.config.settings.keyless;
        let read = blocking(move || {
            // Not that of the source, which is not in this thread.
            let mut copier = Copier::default();
            let mut found = HashMap::new();
            let mut read = || -> KafkaResult<()> {
                for (slot, topic, number, name, offsets) in &places {
                    reader.read(topic, *number, offsets, |offset, record| {
                        found.insert((*slot, offset), copier.raw(name, keyless, record));
                    })?;
                }
                Ok(())
            };
            let read = read();
            (reader, read, found)
        });
        let (reader, read, mut found) = read.await?;
        self.reader = Some(reader);
        read.map_err(SourceError::failed)?;
        for position in positions {
            if let Some(raw) = found.remove(&(position.slot, position.offset)) {
                let generation = position.generation;
                into.push(Delivery::new(raw, *position).generation(generation));
            }
        }
        Ok(())
    }

    /// To be put back. If a call is dropped meanwhile, the next one makes another.
    pub(super) fn take_reader(&mut self) -> Result<Reader, SourceError> {
        match self.reader.take() {
            Some(reader) => Ok(reader),
            None => Reader::new(&self.config).map_err(SourceError::failed),
        }
    }
}
