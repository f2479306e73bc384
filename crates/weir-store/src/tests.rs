use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};

use rustix::fs::FallocateFlags;
use weir_types::ExtentIndex;
use weir_volume::mirror::ReplicaMetadata;

use super::*;

const GIB: u64 = 1 << 30;

fn store() -> (tempfile::TempDir, Store, VolumeId) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("drive")).unwrap();
    (folder, store, VolumeId(uuid::Uuid::new_v4()))
}

/// All extents of a volume that lies on one drive.
fn all(size_bytes: u64) -> Vec<ExtentIndex> {
    ExtentIndex::all_of(size_bytes).collect()
}

fn extent_files(store: &Store, volume: VolumeId) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(store.extents(volume))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Reclaims a pending deletion. Returns the number of operations and the reclaimed bytes.
fn give_back(pending_deletion: &PendingDeletion) -> (u64, u64) {
    let survey = pending_deletion.survey().unwrap();
    let (mut operations, mut bytes) = (0, 0);
    for extent in survey.first.onward(survey.end).rev() {
        let mut is_gone = false;
        while !is_gone {
            let given = pending_deletion.give_back(extent).unwrap();
            assert!(given.bytes <= weir_types::bounds::RECLAIM_STEP_BYTES);
            (operations, bytes, is_gone) = (operations + 1, bytes + given.bytes, given.is_gone);
        }
    }
    pending_deletion.conclude().unwrap();
    assert_eq!((survey.operations, survey.bytes), (operations, bytes));
    (operations, bytes)
}

fn remove(store: &Store, volume: VolumeId) {
    give_back(&store.deleted(volume));
}

#[test]
fn all_extents_exist_with_full_size_from_creation() {
    let (_folder, store, volume) = store();
    for (size, count) in [(4096, 1), (GIB, 1), (GIB + 4096, 2), (20 * GIB, 20)] {
        store.create(volume, &all(size), b"{}", None).unwrap();
        assert_eq!(extent_files(&store, volume).len(), count);
        assert_eq!(check_extents(&store.extents(volume), ExtentIndex::first(count as u32)), []);
        assert!(store.used_bytes(volume).unwrap() < 1 << 20, "a new volume is thin");
        remove(&store, volume);
        assert!(store.scan().unwrap().volumes.is_empty());
    }
}

#[test]
fn shrink_removes_extents_and_zeroes_tail_before_growth() {
    let (_folder, store, volume) = store();
    store.create(volume, &all(2 * GIB), b"{}", None).unwrap();
    let path = store.extents(volume).join("00000000");
    let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    file.write_all(&[7; 8192]).unwrap();
    store.trim_to_size(volume, 4096).unwrap();
    assert_eq!(extent_files(&store, volume), ["00000000"]);
    store.grow(volume, &[1, 2].map(ExtentIndex), b"{}", None).unwrap();
    assert_eq!(extent_files(&store, volume), ["00000000", "00000001", "00000002"]);
    assert_eq!(check_extents(&store.extents(volume), ExtentIndex::first(3)), []);
    let mut content = [9; 8192];
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_exact(&mut content).unwrap();
    assert_eq!((content[4095], content[4096], content[8191]), (7, 0, 0));
}

#[test]
fn crash_leftovers_are_removed_and_volumes_stay() {
    let (_folder, store, volume) = store();
    store.create(volume, &all(GIB), b"{}", None).unwrap();
    fs::write(store.folder(volume).join("record.json.new"), "half").unwrap();
    for suffix in [NEW_SUFFIX, DELETED_SUFFIX] {
        let id = VolumeId(uuid::Uuid::new_v4());
        fs::create_dir_all(store.folder_with(id, suffix).join("extents")).unwrap();
    }
    for stranger in ["mine.deleted", "lost+found"] {
        fs::create_dir(store.volumes().join(stranger)).unwrap();
    }
    store.remove_temporary_records().unwrap();
    let scan = store.scan().unwrap();
    assert_eq!((&scan.volumes, scan.leftovers.len()), (&vec![volume], 2));
    scan.leftovers.iter().for_each(|id| _ = give_back(&store.leftover(*id)));
    let scan = store.scan().unwrap();
    assert_eq!((scan.volumes, scan.leftovers, scan.strangers.len()), (vec![volume], vec![], 2));
    assert_eq!(fs::read_dir(store.folder(volume)).unwrap().count(), 2, "the record and the extents");
}

#[test]
fn large_extent_is_reclaimed_in_steps() {
    let (_folder, store, volume) = store();
    store.create(volume, &all(2 * GIB), b"{}", None).unwrap();
    let path = store.extents(volume).join("00000001");
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let (step, hole) = (weir_types::bounds::RECLAIM_STEP_BYTES, 256 << 20);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, step / 2).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), hole, 2 * step).unwrap();
    drop(file);
    store.begin_deletion(volume).unwrap();
    let (operations, bytes) = give_back(&store.deleted(volume));
    // One operation for the empty extent. Three for the other one, of which the last reclaims only a part of
    // a step.
    assert_eq!(operations, 4);
    assert!(bytes >= 2 * step + step / 2, "{bytes}");
    assert_eq!(fs::read_dir(store.volumes()).unwrap().count(), 0);
}

#[test]
fn reclaim_can_be_interrupted_and_repeated() {
    let (_folder, store, volume) = store();
    store.create(volume, &all(3 * GIB), b"{}", None).unwrap();
    let pending_deletion = store.deleted(volume);
    assert_eq!(pending_deletion.survey().unwrap().end, 3, "a survey marks it for deletion");
    assert!(!store.folder(volume).exists());
    assert!(
        pending_deletion.give_back(ExtentIndex(2)).unwrap().is_gone
            && pending_deletion.give_back(ExtentIndex(2)).unwrap().is_gone
    );
    assert_eq!(
        pending_deletion.survey().unwrap(),
        Survey { first: ExtentIndex(0), end: 2, operations: 2, bytes: 0 }
    );
    // A crash of the machine may bring any of the files back.
    fs::remove_file(store.folder_with(volume, DELETED_SUFFIX).join("extents/00000000")).unwrap();
    assert_eq!(
        pending_deletion.survey().unwrap(),
        Survey { first: ExtentIndex(1), end: 2, operations: 1, bytes: 0 }
    );
    pending_deletion.conclude().unwrap();
    assert_eq!(pending_deletion.survey().unwrap(), Survey::default());
    pending_deletion.conclude().unwrap();
}

#[test]
fn reclaim_of_leftover_keeps_the_volume() {
    let (_folder, store, volume) = store();
    store.create(volume, &all(GIB), b"{}", None).unwrap();
    fs::create_dir(store.folder_with(volume, DELETED_SUFFIX)).unwrap();
    give_back(&store.leftover(volume));
    assert_eq!(store.scan().unwrap().volumes, [volume]);
    assert_eq!(check_extents(&store.extents(volume), ExtentIndex::first(1)), []);
}

#[test]
fn shrunken_extents_leave_the_volume_at_once() {
    let (_folder, store, volume) = store();
    store.create(volume, &all(4 * GIB), b"{}", None).unwrap();
    let content = |path: PathBuf| fs::read(path).unwrap()[..4].to_vec();
    let tail = store.extents(volume).join("00000003");
    OpenOptions::new().write(true).open(&tail).unwrap().write_all(b"old!").unwrap();
    let cut = store.trim_to_size(volume, 2 * GIB).unwrap().unwrap();
    assert_eq!(extent_files(&store, volume), ["00000000", "00000001"]);
    assert_eq!(store.scan().unwrap().leftovers, [cut]);
    store.grow(volume, &[2, 3].map(ExtentIndex), b"{}", None).unwrap();
    assert_eq!(content(tail), [0; 4], "while the old files are still there");
    assert_eq!(store.trim_to_size(volume, 4 * GIB).unwrap(), None);
    give_back(&store.leftover(cut));
    assert_eq!(check_extents(&store.extents(volume), ExtentIndex::first(4)), []);
}

#[test]
fn volume_may_have_some_extents_on_drive() {
    let (_folder, store, volume) = store();
    store.create(volume, &[1, 4].map(ExtentIndex), b"{}", None).unwrap();
    assert_eq!(extent_files(&store, volume), ["00000001", "00000004"]);
    let other = VolumeId(uuid::Uuid::new_v4());
    store.grow(other, &[3, 5].map(ExtentIndex), b"new here", None).unwrap();
    assert_eq!(store.read_record(other).unwrap().unwrap(), b"new here");
    store.grow(other, &[], b"", None).unwrap();
    assert!(store.trim_to_size(other, 4 * GIB).unwrap().is_some());
    assert_eq!(extent_files(&store, other), ["00000003"]);
    let delete_extents = store.delete_extents(other).unwrap().unwrap();
    assert_eq!((store.scan().unwrap().volumes, store.delete_extents(other).unwrap()), (vec![volume], None));
    assert!(store.scan().unwrap().leftovers.contains(&delete_extents));
}

#[test]
fn replica_metadata_comes_and_goes_with_extent() {
    let (_folder, store, volume) = store();
    let metadata = ReplicaMetadata { epoch: 1, ..ReplicaMetadata::default() };
    store.create(volume, &[0, 1].map(ExtentIndex), b"{}", Some(&metadata)).unwrap();
    store.grow(volume, &[ExtentIndex(2)], b"{}", Some(&metadata)).unwrap();
    let of = |extent| store.extents(volume).join(replica_metadata::metadata_file_name(extent));
    assert_eq!(replica_metadata::read(&of(ExtentIndex(2))).unwrap(), Some(metadata.clone()));
    assert_eq!(check_extents(&store.extents(volume), ExtentIndex::first(3)), []);
    let used = store.used_by_extent(volume).unwrap();
    let mut used: Vec<ExtentIndex> = used.into_iter().map(|(index, _)| index).collect();
    used.sort_unstable();
    assert_eq!(used, [0, 1, 2].map(ExtentIndex), "what is kept metadata in is not the volume's data");
    fs::write(store.extents(volume).join("00000002.metadata.new"), "half").unwrap();
    let cut = store.trim_to_size(volume, GIB).unwrap().unwrap();
    assert_eq!(extent_files(&store, volume), ["00000000", "00000000.metadata"]);
    assert_eq!(store.trim_to_size(volume, GIB).unwrap(), None);
    assert_eq!(give_back(&store.leftover(cut)), (2, 0));
    // A crash left only the metadata of an extent that a shrink removed.
    replica_metadata::write(&of(ExtentIndex(7)), &metadata).unwrap();
    assert!(store.trim_to_size(volume, GIB).unwrap().is_some());
    assert_eq!(extent_files(&store, volume), ["00000000", "00000000.metadata"]);
    remove(&store, volume);
    assert!(!store.folder(volume).exists());
}

#[test]
fn missing_and_short_extent_files_are_faults() {
    let (_folder, store, volume) = store();
    store.create(volume, &all(3 * GIB), b"{}", None).unwrap();
    let extents = store.extents(volume);
    fs::remove_file(extents.join("00000001")).unwrap();
    File::create(extents.join("00000002")).unwrap().set_len(5).unwrap();
    let faults = check_extents(&extents, ExtentIndex::first(3));
    assert_eq!(faults.iter().map(|f| f.extent).collect::<Vec<_>>(), [1, 2].map(ExtentIndex));
    assert!(faults[0].message.ends_with("00000001 is missing"), "{}", faults[0].message);
    assert!(faults[1].message.contains("has 5 bytes"), "{}", faults[1].message);
}

#[test]
fn record_backups_are_replaced_singly_and_in_bulk() {
    let (_folder, store, volume) = store();
    store.create(volume, &all(GIB), b"1", None).unwrap();
    let update = |content: &[u8]| RecordUpdate { volume, content: content.to_vec() };
    store.write_records(&[update(b"2")]).unwrap();
    assert_eq!(store.read_record(volume).unwrap().unwrap(), b"2");
    let mut many: Vec<_> = (0..20)
        .map(|_| RecordUpdate { volume: VolumeId(uuid::Uuid::new_v4()), content: b"3".to_vec() })
        .collect();
    many.iter().for_each(|u| store.create(u.volume, &[ExtentIndex(0)], b"1", None).unwrap());
    many.push(update(b"3"));
    store.write_records(&many).unwrap();
    assert!(many.iter().all(|u| store.read_record(u.volume).unwrap().unwrap() == b"3"));
    assert_eq!(store.read_record(VolumeId(uuid::Uuid::nil())).unwrap(), None);
}

#[test]
fn failed_search_for_data_fails_the_trim() {
    let (_folder, store, volume) = store();
    store.create(volume, &[ExtentIndex(0)], b"{}", None).unwrap();
    let path = store.extents(volume).join("00000000");
    fs::remove_file(&path).unwrap();
    // A pipe can be opened, and fails `SEEK_DATA` like a failing drive: with an error other than "no data".
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR, 0)
        .unwrap();
    let error = store.trim_to_size(volume, 4096).unwrap_err();
    assert_eq!(error.action, "look for data in", "{error}");
}

/// Covers the states of a drive's path after its filesystem was unmounted: no folder, an empty folder, and a
/// folder that looks like a drive.
#[test]
fn no_files_are_made_on_absent_drive() {
    let (folder, store, volume) = store();
    store.create(volume, &[ExtentIndex(0)], b"{}", None).unwrap();
    fs::rename(store.drive(), folder.path().join("away")).unwrap();
    let refusals = |case: &str| {
        let new = VolumeId(uuid::Uuid::new_v4());
        let refused = |result: Result<(), StoreError>| assert!(result.is_err(), "{case}");
        refused(store.create(new, &[ExtentIndex(0)], b"{}", None));
        refused(store.grow(volume, &[ExtentIndex(1)], b"{}", None));
        refused(store.add_extent(volume, ExtentIndex(1), b"{}"));
        refused(store.create_journal(new, weir_types::bounds::JOURNAL_BYTES_MIN).map(drop));
        let in_snapshot = store.begin_writes().and_then(|writes| {
            store.begin_snapshot(new, &[ExtentIndex(0)])?;
            store.complete_snapshot(new, &[], &[], b"{}")?;
            store.adopt_snapshots(&writes, &[new])
        });
        refused(in_snapshot);
    };
    refusals("nothing");
    assert!(!store.drive().exists());
    fs::create_dir(store.drive()).unwrap();
    refusals("an empty folder");
    fs::create_dir_all(store.extents(volume)).unwrap();
    refusals("one that looks like a drive");
    assert_eq!(extent_files(&store, volume), [""; 0]);
    fs::remove_dir_all(store.drive()).unwrap();
    fs::rename(folder.path().join("away"), store.drive()).unwrap();
    store.grow(volume, &[ExtentIndex(1)], b"{}", None).unwrap();
    assert_eq!(extent_files(&store, volume), ["00000000", "00000001"]);
}
