//! Performing jobs: the file operations of a helper thread.
//!
//! This module does not know who asked, or what follows from an answer.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use weir_engine_interface::FileIdentity;
use weir_reactor::Descriptor;
use weir_store::extent_file::{check_whole, next_data, next_hole, open_whole};
use weir_store::snapshot::Held;
use weir_store::{epoch_record, replica_metadata, snapshot};
use weir_types::bounds::{ALLOCATION_BYTES, EXTENT_BYTES, STATUS_RUNS_MAX};
use weir_volume::mirror::MetadataFault;
use weir_volume::{AllocationMap, Fault};

use super::jobs::{
    Answer, Job, MetadataAnswer, MetadataError, OpenError, OpenedExtent, ReclaimDone, ReclaimStep, Run,
};
use super::shortage::{is_shortage, patiently};

pub fn perform(job: Job) -> Answer {
    match job {
        Job::Open { replica, number, extent, path, .. } => {
            let result = unless_away(&path, || open_extent(&path)).map_err(|error| OpenError {
                message: describe(&path, &error),
                fault: open_fault(&path, &error),
            });
            Answer::Opened { replica, number, extent, result }
        }
        Job::Status { number, path, offset, length, .. } => {
            let result = open_whole(&path)
                .and_then(|file| runs(&file, u64::from(offset), u64::from(length)))
                .map_err(|error| describe(&path, &error));
            Answer::Status { number, result }
        }
        Job::Background { operation, pending_deletion, step, .. } => {
            let outcome = match step {
                ReclaimStep::Survey => pending_deletion.survey().map(ReclaimDone::Surveyed),
                ReclaimStep::GiveBack(extent) => pending_deletion.give_back(extent).map(ReclaimDone::Given),
                ReclaimStep::Conclude => pending_deletion.conclude().map(|()| ReclaimDone::Concluded),
            };
            Answer::Background { operation, outcome: outcome.map_err(|error| error.to_string()) }
        }
        Job::EpochRecord { volume, path, extent, epoch, is_committed } => {
            let result = match is_committed {
                false => epoch_record::reserve(&path, extent, epoch),
                true => epoch_record::know(&path, extent, epoch),
            };
            let result = result.map_err(|error| metadata_error("epoch record", &path, &error));
            Answer::EpochRecorded { volume, extent, result }
        }
        Job::Failure { volume, path, extent } => {
            let result = epoch_record::fail(&path, extent);
            let result = result.map_err(|error| metadata_error("epoch record", &path, &error));
            Answer::FailureRecorded { volume, extent, result }
        }
        Job::ReplicaMetadata { replica, extent, number, path, metadata, is_anew, due_ns, .. } => {
            let write = if is_anew { replica_metadata::write_anew } else { replica_metadata::write };
            let result = patiently(|| unless_away(&path, || write(&path, &metadata)));
            let result = result.map_err(|error| metadata_error("replica metadata", &path, &error));
            Answer::Metadata(MetadataAnswer { replica, extent, number, due_ns, result })
        }
        Job::Snapshot { replica, number, source, target, range, can_share, has_space, held, .. } => {
            let take = || snapshot::snapshot(&source, &target, range, can_share);
            let lay_over = |held: Held| patiently(|| held.lay_over(&target));
            let reserve = |end| patiently(|| snapshot::reserve(&target, range.0, end));
            let result = patiently(take).and_then(|end| {
                held.map_or(Ok(()), lay_over)?;
                if has_space {
                    reserve(end)?
                }
                Ok(end)
            });
            let result = result.map_err(|error| format!("snapshot {}: {error}", source.display()));
            Answer::SnapshotEnded { replica, number, result }
        }
        Job::Checksums(job) => Answer::Checksums(Box::new(job.perform())),
        Job::Space(job) => Answer::Space(job.perform()),
    }
}

/// Whether the error means that a resource is short, for example space, or that the drive is broken.
fn metadata_fault(error: &io::Error) -> MetadataFault {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS) => MetadataFault::Shortage,
        _ if is_shortage(error) => MetadataFault::Shortage,
        _ => MetadataFault::Broken,
    }
}

/// The fault behind a failed open of an extent's file. If the folder is missing too, the drive is away.
/// Control finds out whether the same drive comes back.
fn open_fault(path: &Path, error: &io::Error) -> Fault {
    match error.kind() {
        _ if is_shortage(error) => Fault::NoMemory,
        _ if is_missing(error) && !is_folder_there(path) => Fault::Away,
        _ => Fault::Broken,
    }
}

/// Retries an operation that found no file although the folder exists now. The drive may have been away and
/// come back in between. A file that is then still missing is lost.
fn unless_away<T>(path: &Path, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match act() {
        Err(error) if is_missing(&error) && is_folder_there(path) => act(),
        result => result,
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_folder_there(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.symlink_metadata().is_ok())
}

fn metadata_error(what: &str, path: &Path, error: &io::Error) -> MetadataError {
    let message = format!("{what} {} cannot be written: {error}", path.display());
    MetadataError { fault: metadata_fault(error), message }
}

fn describe(path: &Path, error: &io::Error) -> String {
    format!("extent file {}: {error}", path.display())
}

fn open_extent(path: &Path) -> io::Result<OpenedExtent> {
    check_whole(&std::fs::symlink_metadata(path)?)?;
    let file = File::from(Descriptor::open_direct(path)?);
    let identity = FileIdentity::of(&file.metadata()?);
    let file = OwnedFd::from(file);
    let map = map_data(&file)?;
    Ok(OpenedExtent { file, map, identity })
}

/// Marks every allocation piece in which the file holds data.
fn map_data(file: &OwnedFd) -> io::Result<AllocationMap> {
    let mut map = AllocationMap::default();
    let mut position = 0;
    while let Some(data) = next_data(file, position)?.filter(|&data| data < EXTENT_BYTES) {
        let piece = data / ALLOCATION_BYTES;
        map.set(piece as u32);
        position = (piece + 1) * ALLOCATION_BYTES;
    }
    Ok(map)
}

/// Data and holes from `offset` on, at most [`STATUS_RUNS_MAX`] runs and `length` bytes. The client asks
/// again for the rest.
fn runs(file: &File, offset: u64, length: u64) -> io::Result<Vec<Run>> {
    let (mut position, end) = (offset, offset + length);
    let mut found = Vec::new();
    while position < end && found.len() < STATUS_RUNS_MAX {
        let data = next_data(file, position)?.unwrap_or(end).min(end);
        let (run_end, is_hole) = if data > position {
            (data, true)
        } else {
            (next_hole(file, position)?.clamp(position + 1, end), false)
        };
        found.push(Run { length: (run_end - position) as u32, is_hole });
        position = run_end;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn data_and_holes_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("extent");
        let file = File::create(&path).unwrap();
        file.set_len(EXTENT_BYTES).unwrap();
        file.write_all_at(&[1; 4096], 5 * ALLOCATION_BYTES + 8192).unwrap();
        file.sync_all().unwrap();
        let OpenedExtent { map, .. } = open_extent(&path).unwrap();
        let held: Vec<u32> = (0..1024).filter(|&piece| map.may_hold_data(piece)).collect();
        assert_eq!(held, [5]);
        let file = File::open(&path).unwrap();
        let all = runs(&file, 5 * ALLOCATION_BYTES, 16384).unwrap();
        let expected = [(8192, true), (4096, false), (4096, true)];
        assert_eq!(all.iter().map(|r| (r.length, r.is_hole)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn returned_drive_is_not_reported_as_missing_file() {
        let state = tempfile::tempdir().unwrap();
        let (here, away) = (state.path().join("here"), state.path().join("away"));
        std::fs::create_dir(&away).unwrap();
        std::fs::write(away.join("file"), b"content").unwrap();
        let path = here.join("file");
        let read = || std::fs::read(&path);
        // The drive comes back between the first attempt and the check of its folder.
        let mut tries = 0;
        let found = unless_away(&path, || {
            tries += 1;
            let found = read();
            if tries == 1 {
                std::fs::rename(&away, &here).unwrap();
            }
            found
        });
        assert_eq!((found.unwrap(), tries), (b"content".to_vec(), 2));
        std::fs::remove_file(&path).unwrap();
        let lost = unless_away(&path, read).unwrap_err();
        assert_eq!(open_fault(&path, &lost), Fault::Broken);
        std::fs::rename(&here, &away).unwrap();
        let gone = unless_away(&path, read).unwrap_err();
        assert_eq!(open_fault(&path, &gone), Fault::Away);
    }

    #[test]
    fn full_drive_is_not_a_broken_drive() {
        use rustix::io::Errno;
        let fault = |errno: Errno| metadata_fault(&io::Error::from(errno));
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::NOMEM, Errno::NFILE] {
            assert_eq!(fault(errno), MetadataFault::Shortage, "{errno}");
        }
        for errno in [Errno::IO, Errno::NODEV, Errno::STALE, Errno::NOENT] {
            assert_eq!(fault(errno), MetadataFault::Broken, "{errno}");
        }
    }

    #[test]
    fn truncated_extent_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("extent");
        File::create(&path).unwrap().set_len(4096).unwrap();
        assert!(open_extent(&path).err().unwrap().to_string().contains("shortened"));
    }
}
