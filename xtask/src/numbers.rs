//! Arithmetic on measurements.

use crate::world::fio::Completion;

/// Returns the median of some numbers, or 0 if there are none.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => 0.0,
        count if count % 2 == 1 => numbers[count / 2],
        count => (numbers[count / 2 - 1] + numbers[count / 2]) / 2.0,
    }
}

/// Returns the quantile of some numbers at `part`, from 0 to 1, or 0 if there are none.
pub fn quantile(numbers: &[f64], part: f64) -> f64 {
    let mut numbers = numbers.to_vec();
    numbers.sort_by(f64::total_cmp);
    let rank = (numbers.len() as f64 * part).ceil().max(1.0) as usize;
    numbers.get(rank - 1).copied().unwrap_or(0.0)
}

/// Returns the completions in `[from_ms, to_ms)`. The completions must be in order.
pub fn between(completions: &[Completion], from_ms: u64, to_ms: u64) -> &[Completion] {
    let start = completions.partition_point(|completion| completion.at_ms < from_ms);
    let end = completions.partition_point(|completion| completion.at_ms < to_ms);
    &completions[start..end.max(start)]
}

/// Returns the completions per second in `[from_ms, to_ms)`.
pub fn rate(completions: &[Completion], from_ms: u64, to_ms: u64) -> f64 {
    let seconds = to_ms.saturating_sub(from_ms).max(1) as f64 / 1000.0;
    between(completions, from_ms, to_ms).len() as f64 / seconds
}

/// Returns the latency in microseconds that `per_cent` of the completions do not exceed, or 0 if there are
/// none.
pub fn percentile_us(completions: &[Completion], per_cent: usize) -> f64 {
    let mut all: Vec<u64> = completions.iter().map(|completion| completion.latency_ns).collect();
    all.sort_unstable();
    let rank = (all.len() * per_cent).div_ceil(100).max(1);
    all.get(rank - 1).map_or(0.0, |&latency_ns| latency_ns as f64 / 1000.0)
}

/// Returns the count that differs most from `expected`, over windows of `width_ms` from `from_ms` to `to_ms`.
pub fn worst_window(
    completions: &[Completion],
    from_ms: u64,
    to_ms: u64,
    width_ms: u64,
    expected: f64,
) -> f64 {
    let starts = (from_ms..to_ms.saturating_sub(width_ms - 1)).step_by(width_ms as usize);
    let counts = starts.map(|start| between(completions, start, start + width_ms).len() as f64);
    counts.max_by(|a, b| (a - expected).abs().total_cmp(&(b - expected).abs())).unwrap_or(0.0)
}

/// Returns the most requests ahead of a schedule of `rate` per second that begins with the first completion.
pub fn ahead_of_schedule(completions: &[Completion], rate: f64) -> f64 {
    let Some(first) = completions.first() else { return 0.0 };
    let due = |at_ms: u64| 1.0 + (at_ms - first.at_ms) as f64 / 1000.0 * rate;
    let ahead = completions.iter().enumerate().map(|(index, c)| (index + 1) as f64 - due(c.at_ms));
    ahead.fold(0.0, f64::max)
}

/// Pace of a stream of completions under a rate.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Completions per second over the whole time.
    pub whole: f64,
    /// Median of completions per second, from one second to the next.
    pub usual: f64,
}

/// Returns the pace of completions under `rate` in `[from_ms, to_ms)`, which is at least two seconds.
///
/// A busy client counts late and never early. Each second is therefore represented by the moment at which its
/// count was furthest ahead of the rate. The count from one moment to the next shows the server and not the
/// client.
pub fn pace(completions: &[Completion], from_ms: u64, to_ms: u64, rate: f64) -> Pace {
    let all = between(completions, from_ms, to_ms);
    let ahead = |count: usize, at_ms: u64| count as f64 - (at_ms - from_ms) as f64 / 1000.0 * rate;
    let furthest = |start_ms: u64| {
        let first = all.partition_point(|completion| completion.at_ms < start_ms);
        let second = between(all, start_ms, start_ms + 1000).iter().enumerate();
        let counted = second.map(|(index, completion)| ahead(first + index + 1, completion.at_ms));
        counted.fold(ahead(first, start_ms), f64::max)
    };
    let seconds: Vec<f64> = (from_ms..to_ms.saturating_sub(999)).step_by(1000).map(furthest).collect();
    let gains = seconds.windows(2).map(|pair| pair[1] - pair[0]);
    let whole = gains.clone().sum::<f64>() / gains.len().max(1) as f64;
    Pace { whole: rate + whole, usual: rate + median(gains) }
}

/// Returns true if a count differs from the expected one by at most a fraction of it, or by at most one.
pub fn is_near(count: f64, expected: f64, tolerance: f64) -> bool {
    (count - expected).abs() <= (expected * tolerance).max(1.0)
}

/// Returns the difference between a number and the expected one, in per cent.
pub fn off_per_cent(number: f64, expected: f64) -> f64 {
    (number / expected - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_ms(count: u64, step_ms: u64) -> Vec<Completion> {
        (0..count)
            .map(|index| Completion { at_ms: index * step_ms, latency_ns: (index + 1) * 1000 })
            .collect()
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn rates_and_windows_are_counted() {
        let completions = every_ms(2000, 1);
        assert_eq!(rate(&completions, 500, 1500), 1000.0);
        assert_eq!(worst_window(&completions, 0, 2000, 100, 100.0), 100.0);
        assert_eq!(worst_window(&completions, 0, 3000, 1000, 1000.0), 0.0);
        assert_eq!(percentile_us(&completions, 99), 1980.0);
        assert_eq!(percentile_us(&[], 99), 0.0);
    }

    #[test]
    fn only_a_burst_is_ahead_of_schedule() {
        assert_eq!(ahead_of_schedule(&every_ms(1000, 1), 1000.0), 0.0);
        let burst = vec![Completion { at_ms: 5, latency_ns: 1 }; 50];
        assert_eq!(ahead_of_schedule(&burst, 1000.0), 49.0);
    }

    #[test]
    fn pace_is_independent_of_late_client_counts() {
        let prompt = every_ms(8000, 1);
        let off = |found: f64, expected: f64| (found - expected).abs() < 1.0;
        let found = pace(&prompt, 0, 8000, 1000.0);
        assert!(off(found.whole, 1000.0) && off(found.usual, 1000.0), "{found:?}");
        // The client counts nothing for 300 ms of each second, and then everything at once. The measured time
        // begins in one of the gaps.
        let late = |at_ms: u64| if at_ms % 1000 < 300 { at_ms - at_ms % 1000 + 300 } else { at_ms };
        let counted = prompt.iter().map(|c| Completion { at_ms: late(c.at_ms), ..*c });
        let found = pace(&counted.collect::<Vec<_>>(), 1200, 7200, 1000.0);
        assert!(off(found.whole, 1000.0) && off(found.usual, 1000.0), "{found:?}");
        // A machine that stalls for a second lowers the rate of the whole time and not the usual rate.
        let stalled = prompt.iter().filter(|c| !(3000..4000).contains(&c.at_ms)).copied();
        let found = pace(&stalled.collect::<Vec<_>>(), 0, 8000, 1000.0);
        assert!(found.whole < 900.0 && off(found.usual, 1000.0), "{found:?}");
        let found = pace(&every_ms(9000, 1), 0, 8000, 900.0);
        assert!(off(found.whole, 1000.0) && off(found.usual, 1000.0), "{found:?}");
        assert!(off(pace(&[], 0, 8000, 1000.0).usual, 0.0));
    }

    #[test]
    fn near_means_a_fraction_or_one() {
        assert!(is_near(29.0, 30.0, 0.001) && !is_near(28.0, 30.0, 0.001));
        assert!(is_near(30_030.0, 30_000.0, 0.001) && !is_near(30_031.0, 30_000.0, 0.001));
    }
}
