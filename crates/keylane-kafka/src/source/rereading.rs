//! Reads deferred records again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use keylane_source::{Deliveries, Delivery, SourceError};
use rdkafka::error::KafkaResult;

use super::job::blocking;
use super::state::KafkaSource;
use crate::core::KafkaPosition;
use crate::link::{Reader, size};

impl<M: Send + 'static> KafkaSource<M> {
    pub(super) async fn read_again(
        &mut self,
        positions: &[KafkaPosition],
        into: &mut Deliveries<M, KafkaPosition>,
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
                let (topic, name) = (one.topic.clone(), one.queue.records.name().to_owned());
                Some((slot, topic, one.number, name, offsets))
            })
            .collect();
        let mut reader = self.take_reader()?;
        let mut maker = self.maker.clone();
        let read = blocking(move || {
            let mut found = HashMap::new();
            let mut read = || -> KafkaResult<()> {
                for (slot, topic, number, name, offsets) in &places {
                    reader.read(topic, *number, offsets, |offset, record| {
                        let made = (maker.make(name, record), size(record));
                        found.insert((*slot, offset), made);
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
            if let Some((message, size)) = found.remove(&(position.slot, position.offset)) {
                let generation = position.generation;
                let delivery = Delivery::new(message, *position).generation(generation);
                into.push(delivery.bytes(size));
            }
        }
        Ok(())
    }
}

impl<M> KafkaSource<M> {
    /// Takes the reader, to be put back. If a call is dropped meanwhile, the next one makes
    /// another.
    pub(super) fn take_reader(&mut self) -> Result<Reader, SourceError> {
        match self.reader.take() {
            Some(reader) => Ok(reader),
            None => Reader::new(&self.config).map_err(SourceError::failed),
        }
    }
}
