//! Recording of a disk's writes, and the disk's contents after a power cut.
//!
//! dm-log-writes records a write once a later flush has completed, or at once if the write itself was FUA.
//! Unstable data is therefore missing from every state that is played back. The format of the recording is
//! that of the kernel's `drivers/md/dm-log-writes.c`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::SeekFrom;

use super::commands::run;
use super::inside::dmsetup;

/// Size of the disk, in bytes: the minimum of XFS, plus a journal of Weir.
const DISK_BYTES: u64 = 512 << 20;
/// Disks in memory, each a file and its device. They are the recorded disk, its contents up to the played
/// position, and the writes after a power cut.
const LIVE: (&str, &str) = ("/tmp/live", "/dev/loop0");
const PLAYED: (&str, &str) = ("/tmp/played", "/dev/loop1");
const WRITTEN: (&str, &str) = ("/tmp/written", "/dev/loop2");
/// Device that holds the recording.
const RECORDING: &str = "/dev/vdb";
/// Names of device mapper disks.
const RECORDED: &str = "recorded";
const CUT: &str = "cut";

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSHED: u64 = 1;
const DISCARDED: u64 = 4;
const MARKED: u64 = 8;
/// Bytes of an entry's head before the text of a mark.
const HEAD_BYTES: usize = 32;

/// Disk while it is recorded.
pub struct Recorder;

/// Finished recording.
pub struct Recording {
    log: File,
    played: File,
    sector_bytes: u64,
    entries_left: u64,
    position: u64,
}

/// Instant at which a power cut is tried.
#[derive(Debug, PartialEq, Eq)]
pub enum Instant {
    /// At this mark.
    Mark(usize),
    /// After a flush between two marks.
    Flush,
}

struct Entry {
    sector: u64,
    sectors: u64,
    flags: u64,
    text: String,
}

impl Recorder {
    /// Creates a disk with a filesystem, and records all its writes from now on.
    pub fn start(mkfs: &[&str]) -> Result<Recorder> {
        make(LIVE)?;
        let (program, arguments) = mkfs.split_first().context("a filesystem is made by a program")?;
        run(Command::new(program).args(arguments).arg(LIVE.1))?;
        make(PLAYED)?;
        duplicate_data(Path::new(LIVE.0), Path::new(PLAYED.0))?;
        create(RECORDED, &format!("log-writes {} {RECORDING}", LIVE.1))?;
        Ok(Recorder)
    }

    /// Returns the path of the device.
    pub fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(RECORDED)
    }

    /// Adds a mark to the recording.
    pub fn mark(&self, number: usize) -> Result<()> {
        dmsetup(&["message", RECORDED, "0", "mark", &number.to_string()])
    }

    /// Ends the recording of a disk that is no longer in use.
    pub fn end(self) -> Result<Recording> {
        dmsetup(&["remove", RECORDED])?;
        unmake(LIVE)?;
        let log = File::open(RECORDING)?;
        let mut head = [0; HEAD_BYTES];
        log.read_exact_at(&mut head, 0)?;
        ensure!(word(&head, 0) == MAGIC && word(&head, 8) == VERSION, "the disk holds no recording");
        let sector_bytes = word(&head, 24) & u64::from(u32::MAX);
        let played = OpenOptions::new().write(true).open(PLAYED.0)?;
        Ok(Recording { log, played, sector_bytes, entries_left: word(&head, 16), position: sector_bytes })
    }
}

impl Recording {
    /// Plays the recording up to the next mark or flush.
    pub fn play(&mut self) -> Result<Option<Instant>> {
        while self.entries_left > 0 {
            let entry = self.next_entry()?;
            if entry.flags & MARKED != 0 {
                // The last mark is the kernel's own, whose text is no number.
                return Ok(entry.text.parse().ok().map(Instant::Mark));
            }
            self.play_entry(&entry)?;
            if entry.flags & FLUSHED != 0 {
                return Ok(Some(Instant::Flush));
            }
        }
        Ok(None)
    }

    fn next_entry(&mut self) -> Result<Entry> {
        let mut bytes = vec![0; self.sector_bytes as usize];
        self.log.read_exact_at(&mut bytes, self.position)?;
        self.position += self.sector_bytes;
        self.entries_left -= 1;
        let (flags, length) = (word(&bytes, 16), word(&bytes, 24) as usize);
        let text = match flags & MARKED {
            0 => String::new(),
            _ => String::from_utf8(bytes[HEAD_BYTES..HEAD_BYTES + length].to_vec())?,
        };
        Ok(Entry { sector: word(&bytes, 0), sectors: word(&bytes, 8), flags, text })
    }

    fn play_entry(&mut self, entry: &Entry) -> Result<()> {
        let mut bytes = vec![0; (entry.sectors * self.sector_bytes) as usize];
        if entry.flags & DISCARDED == 0 {
            self.log.read_exact_at(&mut bytes, self.position)?;
            self.position += bytes.len() as u64;
        }
        Ok(self.played.write_all_at(&bytes, entry.sector * self.sector_bytes)?)
    }

    /// Creates a disk with the played contents. Writes to it do not change the played contents.
    pub fn cut_power(&self) -> Result<Cut> {
        make(WRITTEN)?;
        create(CUT, &format!("snapshot {} {} N 8", PLAYED.1, WRITTEN.1))?;
        Ok(Cut)
    }
}

/// Disk after a power cut.
pub struct Cut;

impl Cut {
    /// Returns the path of the device.
    pub fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(CUT)
    }

    /// Removes a disk that is no longer in use.
    pub fn end(self) -> Result<()> {
        dmsetup(&["remove", CUT])?;
        unmake(WRITTEN)
    }
}

/// Creates a device mapper disk that is as large as the disks in memory.
fn create(name: &str, target: &str) -> Result<()> {
    dmsetup(&["create", name, "--table", &format!("0 {} {target}", DISK_BYTES / 512)])
}

/// Creates a disk in memory.
fn make((file, device): (&str, &str)) -> Result<()> {
    File::create(file)?.set_len(DISK_BYTES)?;
    run(Command::new("losetup").args([device, file]))
}

/// Removes a disk in memory.
fn unmake((file, device): (&str, &str)) -> Result<()> {
    run(Command::new("losetup").args(["-d", device]))?;
    Ok(std::fs::remove_file(file)?)
}

/// Duplicates what a sparse file holds to one that holds nothing.
fn duplicate_data(from: &Path, to: &Path) -> Result<()> {
    let (from, to) = (File::open(from)?, OpenOptions::new().write(true).open(to)?);
    let mut end = 0;
    while let Ok(start) = rustix::fs::seek(&from, SeekFrom::Data(end)) {
        end = rustix::fs::seek(&from, SeekFrom::Hole(start))?;
        let mut bytes = vec![0; (end - start) as usize];
        from.read_exact_at(&mut bytes, start)?;
        to.write_all_at(&bytes, start)?;
    }
    Ok(())
}

fn word(bytes: &[u8], start: usize) -> u64 {
    u64::from_le_bytes(bytes[start..start + 8].try_into().expect("a word has eight bytes"))
}
