//! The letters that came back, until a reader asks for them.

use crate::store::Redriven;

/// Up to this many are named one by one; beyond that, only the lowest sequence is kept.
const MOST: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct RedrivenLog {
    sequences: Vec<u64>,
    /// Set when there were too many: the lowest sequence.
    from: Option<u64>,
}

impl RedrivenLog {
    pub(super) fn extend(&mut self, sequences: &[u64]) {
        if let Some(from) = self.from {
            self.from = sequences.iter().copied().chain([from]).min();
        } else {
            self.sequences.extend(sequences);
            if self.sequences.len() > MOST {
                self.from = self.sequences.iter().copied().min();
                self.sequences = Vec::new();
            }
        }
    }

    pub(super) fn take(&mut self) -> Redriven {
        let Self { sequences, from } = std::mem::take(self);
        from.map_or(Redriven::Sequences(sequences), Redriven::From)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_named_once() {
        let mut log = RedrivenLog::default();
        log.extend(&[7, 3]);
        log.extend(&[5]);
        assert_eq!(log.take(), Redriven::Sequences(vec![7, 3, 5]));
        assert_eq!(log.take(), Redriven::Sequences(vec![]));
    }

    #[test]
    fn too_many_are_not_named() {
        let mut log = RedrivenLog::default();
        log.extend(&(10..10 + MOST as u64).collect::<Vec<_>>());
        log.extend(&[9]);
        log.extend(&[8, 20]);
        assert_eq!(log.take(), Redriven::From(8));
        log.extend(&[3]);
        assert_eq!(log.take(), Redriven::Sequences(vec![3]));
    }
}
