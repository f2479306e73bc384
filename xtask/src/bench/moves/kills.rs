//! Killed moves: changes of replica placement are interrupted by kill -9 at random moments.
//!
//! The next daemon continues each change, and the change ends as requested. No acknowledged write is lost or
//! wrong.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Area, CHANGES, Change, DRIVES, DRIVES_OF_EACH, EXTENTS, Stage, WORKED};
use crate::bench::{GIB, MIB, Options, wait_for_empty_journals};
use crate::report::{Report, print_table};
use crate::world::fio::Load;
use crate::world::now_ms;

/// Area that is written as a whole and acknowledged before each kill. The client that is killed too does not
/// write it.
const ACKNOWLEDGED: Area = Area { start: GIB - 64 * MIB, bytes: MIB / 2 };
/// Checksums of alternate rounds, which tell the writes of one round from those of the round before.
const CHECKSUMS: [&str; 2] = ["md5", "crc32c"];
/// Duration of a short change, in milliseconds. It would end before the area is written, so the area is
/// written before it. For a longer change the area is written during the change.
const SHORT_MS: u64 = 2000;
/// Pause between two checks of a volume after a start.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// Bytes of a replica that are compared at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Result of one kill.
struct Round {
    change: &'static Change,
    killed_after_ms: u64,
    /// Extents whose replicas were not in place when the next daemon started.
    extents_left: u64,
    ended_after: Duration,
}

/// Kills the daemon and checks the replicas, round by round.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let kills = if options.is_quick { 6 } else { 20 };
    let mut stage = Stage::new(options)?;
    let mut seed = now_ms();
    println!("the moments of kills follow from {seed}:");
    let mut rounds = Vec::new();
    for (number, change) in CHANGES.iter().cycle().take(kills).enumerate() {
        let checksum = CHECKSUMS[number % CHECKSUMS.len()];
        let round = kill_once(&mut stage, change, checksum, random_below(&mut seed, change.lasts_ms));
        let round = round.with_context(|| format!("kill {}, {}", number + 1, change.name))?;
        report.row(json!({
            "change": change.name, "killed_after_ms": round.killed_after_ms,
            "extents_left": round.extents_left, "ended_after_seconds": round.ended_after.as_secs_f64(),
        }));
        rounds.push(round);
    }
    let row = |round: &Round| {
        let ended = format!("{:.1}", round.ended_after.as_secs_f64());
        let left = round.extents_left.to_string();
        vec![round.change.name.to_owned(), round.killed_after_ms.to_string(), left, ended]
    };
    print_table(&["change", "killed after ms", "extents left", "ended after s"], rounds.iter().map(row));
    let interrupted = rounds.iter().filter(|round| round.extents_left > 0).count();
    let what = format!(
        "after each of {kills} kills all ended as it was asked for, every byte right on every replica"
    );
    report.claim(what, format!("{interrupted} were on the way"), interrupted > 0);
    Ok(())
}

/// Returns a random number below a bound (SplitMix64).
fn random_below(seed: &mut u64, bound: u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % bound
}

fn kill_once(
    stage: &mut Stage,
    change: &'static Change,
    checksum: &'static str,
    killed_after_ms: u64,
) -> Result<Round> {
    let client = Load { seconds: 900, ..stage.load("client", WORKED, "crc32c") };
    let mut client = client.start(stage.folder.path())?;
    let is_short = change.lasts_ms <= SHORT_MS;
    if is_short {
        stage.write(ACKNOWLEDGED, checksum)?;
    }
    stage.daemon().run(change.command)?;
    std::thread::sleep(Duration::from_millis(killed_after_ms));
    if !is_short {
        stage.write(ACKNOWLEDGED, checksum)?;
    }
    ensure!(!client.has_ended()?, "fio saw an error or a wrong byte");
    stage.kill();
    drop(client);
    stage.start()?;
    let extents_left = extents_left(stage)?;
    stage.verify(ACKNOWLEDGED, checksum)?;
    stage.verify(WORKED, "crc32c")?;
    let began = Instant::now();
    stage.daemon().run(&format!("{} --wait", change.command))?;
    let ended_after = began.elapsed();
    stage.verify(ACKNOWLEDGED, checksum)?;
    stage.verify(WORKED, "crc32c")?;
    look_at_replicas(stage, change)?;
    Ok(Round { change, killed_after_ms, extents_left, ended_after })
}

/// Returns the number of extents whose replicas are not in place, once the daemon has counted them.
fn extents_left(stage: &Stage) -> Result<u64> {
    loop {
        let volume = stage.inspect()?;
        if volume.get("moving").is_none() {
            return Ok(0);
        }
        // The number is absent or 0 until the daemon has counted the extents.
        match volume["moving"]["extents_left"].as_u64() {
            None | Some(0) => std::thread::sleep(LOOK_PAUSE),
            Some(left) => return Ok(left),
        }
    }
}

/// Fails unless each extent has exactly the expected replicas, all with the same bytes.
fn look_at_replicas(stage: &Stage, change: &Change) -> Result<()> {
    wait_for_empty_journals(stage.daemon())?;
    let volume = stage.inspect()?;
    let stale = volume["replication"]["stale"].as_u64().unwrap_or(0);
    ensure!(volume.get("moving").is_none() && stale == 0, "it has not ended: {volume}");
    for extent in 0..EXTENTS {
        let replicas = DRIVES.map(|(drive, ..)| files_of(stage, &volume, drive, extent));
        let found = replicas.each_ref().map(|files| files.len() as u64);
        ensure!(
            found == change.replicas,
            "extent {extent} has {found:?} replicas and not {:?}",
            change.replicas
        );
        let files: Vec<PathBuf> = replicas.into_iter().flatten().collect();
        for area in [ACKNOWLEDGED, WORKED] {
            let (start, end) =
                (area.start.max(extent * GIB), (area.start + area.bytes).min((extent + 1) * GIB));
            if start < end {
                compare(&files, start - extent * GIB, end - start)?;
            }
        }
    }
    Ok(())
}

/// Returns the replica files of an extent on drives of one kind.
fn files_of(stage: &Stage, volume: &Value, drive: &str, extent: u64) -> Vec<PathBuf> {
    let id = volume["id"].as_str().unwrap_or_default();
    let file = |number: usize| {
        let folder = stage.folder.path().join(format!("{drive}{number}")).join("volumes").join(id);
        folder.join("extents").join(format!("{extent:08}"))
    };
    (1..=DRIVES_OF_EACH).map(file).filter(|file| file.exists()).collect()
}

fn compare(files: &[PathBuf], start: u64, bytes: u64) -> Result<()> {
    let open: Vec<File> = files.iter().map(File::open).collect::<Result<_, _>>()?;
    let (mut first, mut other) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    for offset in (start..start + bytes).step_by(PIECE_BYTES) {
        let length = PIECE_BYTES.min((start + bytes - offset) as usize);
        open[0].read_exact_at(&mut first[..length], offset)?;
        for (file, path) in open.iter().zip(files).skip(1) {
            file.read_exact_at(&mut other[..length], offset)?;
            ensure!(first[..length] == other[..length], "{} differs near {offset}", path.display());
        }
    }
    Ok(())
}
