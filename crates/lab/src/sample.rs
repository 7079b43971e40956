//! A sample of measured values: what of it is printed.

use serde::Serialize;

/// The middle and the spread of a sample, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    /// A quarter of the sample is below.
    pub(crate) p25: f64,
    /// A quarter of the sample is above.
    pub(crate) p75: f64,
    pub(crate) min: f64,
}

impl Summary {
    /// Of at least one value.
    pub(crate) fn of(sample: &[f64]) -> Self {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |q: f64| {
            sorted.get(((sorted.len().saturating_sub(1)) as f64 * q).round() as usize).copied().unwrap_or(0.0)
        };
        Self { median: at(0.5), p25: at(0.25), p75: at(0.75), min: at(0.0) }
    }

    /// Half the distance between the quartiles: "median ± this" holds half of the sample.
    pub(crate) fn spread(&self) -> f64 {
        (self.p75 - self.p25) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_quarters() {
        let s = Summary::of(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((s.min, s.p25, s.median, s.p75, s.spread()), (1.0, 2.0, 3.0, 4.0, 1.0));
        assert_eq!(Summary::of(&[7.0]).median, 7.0);
    }
}
