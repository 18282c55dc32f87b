//! The names of the assigned partitions, shared with what describes positions without the source.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use keylane_connector::lock;
use keylane_source::{Describer, Generation};

use super::position::KafkaPosition;

/// The name of each assigned partition, by its generation. Clones share them. They change with the
/// assignment only, so no record pays for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Arc<Mutex<BTreeMap<Generation, Box<str>>>>);

impl Names {
    pub(super) fn add(&self, generation: Generation, topic: &str, number: i32) {
        let name = format!("{topic}/{number}").into();
        lock(&self.0).insert(generation, name);
    }

    pub(super) fn remove(&self, generation: Generation) {
        lock(&self.0).remove(&generation);
    }

    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// Describes positions by the names of that time.
    pub(super) fn describer(&self) -> Describer<KafkaPosition> {
        let names = self.clone();
        Describer::new(move |position: &KafkaPosition| {
            let offset = position.offset;
            match lock(&names.0).get(&position.generation) {
                Some(name) => format!("{name}@{offset}"),
                None => format!("offset {offset} of a partition that was lost"),
            }
        })
    }
}
