//! Many measurements, as few numbers.

use std::time::Duration;

/// One figure over all rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Nothing where nothing was measured.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let median = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        Some(Self { median, min, max })
    }
}

/// How long each of many calls took.
#[derive(Default)]
pub(crate) struct Latencies {
    nanos: Vec<u32>,
}

impl Latencies {
    pub(crate) fn add(&mut self, took: Duration) {
        self.nanos.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.nanos.extend(others.nanos);
    }

    pub(crate) fn len(&self) -> usize {
        self.nanos.len()
    }

    /// In milliseconds, what this part of the calls did not exceed; 1.0 gives the longest.
    pub(crate) fn percentile(&mut self, part: f64) -> f64 {
        self.nanos.sort_unstable();
        let at = (self.nanos.len() as f64 * part).ceil() as usize;
        let nanos = self.nanos.get(at.saturating_sub(1)).copied().unwrap_or_default();
        f64::from(nanos) / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        let spread = Spread::of(vec![4.0, 1.0, 2.0, 3.0]).expect("not empty");
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
        assert!(Spread::of(Vec::new()).is_none());
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut latencies = Latencies::default();
        for millis in (1..=100).rev() {
            latencies.add(Duration::from_millis(millis));
        }
        assert_eq!(latencies.percentile(0.5), 50.0);
        assert_eq!(latencies.percentile(0.99), 99.0);
        assert_eq!(latencies.percentile(1.0), 100.0);
    }
}
