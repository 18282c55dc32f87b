//! Times of changes.

/// Times, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<u64>);

impl Samples {
    /// Adds one.
    pub fn push(&mut self, micros: u64) {
        self.0.push(micros);
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the time in milliseconds below which this share of them is, from 0 to 1: the nearest
    /// that was measured.
    pub fn below(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (share * sorted.len() as f64).ceil() as usize;
        let found = sorted.get(at.saturating_sub(1));
        found.map_or(f64::NAN, |micros| *micros as f64 / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_the_nearest_samples() {
        let mut samples = Samples::default();
        assert!(samples.below(0.5).is_nan());
        for micros in (1..=100).rev() {
            samples.push(micros * 1_000);
        }
        assert_eq!(
            [0.5, 0.99, 1.0].map(|share| samples.below(share)),
            [50.0, 99.0, 100.0]
        );
        assert_eq!((samples.below(0.0), samples.count()), (1.0, 100));
    }
}
