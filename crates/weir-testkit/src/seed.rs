//! Seeds that differ in each run of the tests, beside those that are fixed.

/// A new seed from the clock, or the one of `WEIR_SEED`. It is printed, so that a failure can be repeated.
pub fn fresh() -> u64 {
    let given = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok());
    // Small numbers are added to a seed.
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos() as u64 >> 8);
    let seed = given.unwrap_or_else(clock);
    println!("WEIR_SEED={seed}");
    seed
}
