//! Medians, intervals, and whether a difference is more than noise.

use serde::{Deserialize, Serialize};

/// How many resamples an interval is made from.
const RESAMPLES: usize = 2000;

/// A median with its 95 % bootstrap interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// How many values it comes from.
    pub n: usize,
}

impl Estimate {
    /// Half the interval's width as a part of the median; 0 if that is 0.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.median.abs() }
    }
}

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut v: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    v.sort_by(f64::total_cmp);
    let mid = v.len() / 2;
    match v.len() {
        0 => None,
        n if n % 2 == 1 => Some(v[mid]),
        _ => Some((v[mid - 1] + v[mid]) / 2.0),
    }
}

/// The mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() { None } else { Some(values.iter().sum::<f64>() / values.len() as f64) }
}

/// The standard deviation of a sample (n - 1); 0 of a single value.
pub fn stddev(values: &[f64]) -> Option<f64> {
    let m = mean(values)?;
    if values.len() < 2 {
        return Some(0.0);
    }
    let sum: f64 = values.iter().map(|x| (x - m).powi(2)).sum();
    Some((sum / (values.len() - 1) as f64).sqrt())
}

/// The median and its percentile bootstrap interval. The same values give the same interval.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let v: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    let median_of_all = median(&v)?;
    let mut rng = fastrand::Rng::with_seed(0x0065_7874_3402);
    let mut resample = vec![0.0; v.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            resample.fill_with(|| v[rng.usize(..v.len())]);
            median(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |q: f64| medians[((medians.len() - 1) as f64 * q).round() as usize];
    Some(Estimate { median: median_of_all, low: at(0.025), high: at(0.975), n: v.len() })
}

/// The ratio A/B of values measured next to each other, one for each pair. Pairs whose B is 0 are
/// left out.
pub fn ratio(pairs: &[(f64, f64)]) -> Option<Estimate> {
    let ratios: Vec<f64> = pairs.iter().filter(|(_, b)| *b != 0.0).map(|(a, b)| a / b).collect();
    estimate(&ratios)
}

/// What a ratio says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A is more.
    More,
    /// A is less.
    Less,
    /// The interval holds 1: noise swallows the difference, if there is one.
    Noise,
    /// Too few pairs to say.
    TooFew,
}

/// How many pairs a verdict takes at least.
pub const MIN_PAIRS: usize = 3;

/// What a ratio of pairs says.
pub fn verdict(ratio: &Estimate) -> Verdict {
    if ratio.n < MIN_PAIRS {
        Verdict::TooFew
    } else if ratio.low > 1.0 {
        Verdict::More
    } else if ratio.high < 1.0 {
        Verdict::Less
    } else {
        Verdict::Noise
    }
}

/// The ratio of the medians of two groups that were not measured in pairs, such as those of two
/// runs: both are resampled.
pub fn unpaired_ratio(a: &[f64], b: &[f64]) -> Option<Estimate> {
    let clean = |v: &[f64]| v.iter().copied().filter(|x| x.is_finite()).collect::<Vec<f64>>();
    let (a, b) = (clean(a), clean(b));
    let (ma, mb) = (median(&a)?, median(&b)?);
    if mb == 0.0 {
        return None;
    }
    let mut rng = fastrand::Rng::with_seed(0x0065_7874_3402);
    let mut draw = |v: &[f64]| {
        let r: Vec<f64> = v.iter().map(|_| v[rng.usize(..v.len())]).collect();
        median(&r).unwrap_or(f64::NAN)
    };
    let mut ratios: Vec<f64> =
        (0..RESAMPLES).map(|_| draw(&a) / draw(&b)).filter(|r| r.is_finite()).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |q: f64| ratios.get(((ratios.len().max(1) - 1) as f64 * q).round() as usize).copied();
    Some(Estimate { median: ma / mb, low: at(0.025)?, high: at(0.975)?, n: a.len().min(b.len()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(
            stddev(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).map(|s| (s * 1e3).round()),
            Some(2138.0)
        );
        assert_eq!(stddev(&[7.0]), Some(0.0));
    }

    #[test]
    fn the_interval_holds_the_median_and_stays_within_the_values() {
        let mut rng = fastrand::Rng::with_seed(7);
        for n in 1..40 {
            let v: Vec<f64> = (0..n).map(|_| rng.f64() * 100.0).collect();
            let e = estimate(&v).unwrap();
            let (min, max) =
                v.iter().fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
            assert!(min <= e.low && e.low <= e.median && e.median <= e.high && e.high <= max);
            assert_eq!(estimate(&v), Some(e));
        }
        let e = estimate(&[5.0; 9]).unwrap();
        assert_eq!((e.low, e.median, e.high, e.spread()), (5.0, 5.0, 5.0, 0.0));
    }

    /// The interval of the median of n values covers the true median about 95 times in 100.
    #[test]
    fn the_interval_covers() {
        let mut rng = fastrand::Rng::with_seed(11);
        let covered = (0..400)
            .filter(|_| {
                let v: Vec<f64> = (0..25).map(|_| rng.f64()).collect();
                let e = estimate(&v).unwrap();
                e.low <= 0.5 && 0.5 <= e.high
            })
            .count();
        assert!((352..=396).contains(&covered), "{covered} of 400");
    }

    #[test]
    fn a_difference_in_every_pair_is_seen_through_common_noise() {
        let noise = [1.0, 3.0, 0.5, 2.0, 1.5, 4.0, 0.7];
        let pairs: Vec<(f64, f64)> = noise.iter().map(|n| (n * 1.1, *n)).collect();
        assert_eq!(verdict(&ratio(&pairs).unwrap()), Verdict::More);
        let a: Vec<f64> = pairs.iter().map(|p| p.0).collect();
        assert_eq!(verdict(&unpaired_ratio(&a, &noise).unwrap()), Verdict::Noise);
        let same: Vec<(f64, f64)> =
            vec![(1.0, 1.1), (1.1, 1.0), (1.0, 1.0), (0.9, 1.0), (1.0, 0.9)];
        assert_eq!(verdict(&ratio(&same).unwrap()), Verdict::Noise);
        assert_eq!(verdict(&ratio(&[(1.0, 2.0)]).unwrap()), Verdict::TooFew);
        assert_eq!(ratio(&[(1.0, 0.0)]), None);
        assert_eq!(verdict(&unpaired_ratio(&[1.0; 5], &[2.0; 5]).unwrap()), Verdict::Less);
    }
}
