use std::io::{Read, Seek, SeekFrom, Write};

use super::*;

const GIB: u64 = 1 << 30;

fn store() -> (tempfile::TempDir, Store, VolumeId) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("drive")).unwrap();
    (folder, store, VolumeId(uuid::Uuid::new_v4()))
}

fn extent_files(store: &Store, volume: VolumeId) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(store.extents(volume))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn all_extents_exist_with_full_size_from_creation() {
    let (_folder, store, volume) = store();
    for (size, count) in [(4096, 1), (GIB, 1), (GIB + 4096, 2), (20 * GIB, 20)] {
        store.create(volume, size, b"{}").unwrap();
        assert_eq!(extent_files(&store, volume).len(), count);
        assert_eq!(check_extents(&store.extents(volume), size), []);
        assert!(store.used_bytes(volume).unwrap() < 1 << 20, "a new volume is thin");
        store.delete(volume).unwrap();
        assert!(store.scan().unwrap().volumes.is_empty());
    }
}

#[test]
fn growing_adds_and_shrinking_removes_and_zeroes_the_tail() {
    let (_folder, store, volume) = store();
    store.create(volume, 2 * GIB, b"{}").unwrap();
    let path = store.extents(volume).join("00000000");
    let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    file.write_all(&[7; 8192]).unwrap();
    store.trim_to_size(volume, 4096).unwrap();
    assert_eq!(extent_files(&store, volume), ["00000000"]);
    store.grow(volume, 4096, 3 * GIB).unwrap();
    assert_eq!(extent_files(&store, volume), ["00000000", "00000001", "00000002"]);
    assert_eq!(check_extents(&store.extents(volume), 3 * GIB), []);
    let mut content = [9; 8192];
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_exact(&mut content).unwrap();
    assert_eq!((content[4095], content[4096], content[8191]), (7, 0, 0));
}

#[test]
fn leftovers_of_a_crash_are_removed_and_volumes_stay() {
    let (_folder, store, volume) = store();
    store.create(volume, GIB, b"{}").unwrap();
    for suffix in [NEW_SUFFIX, DELETED_SUFFIX] {
        let id = VolumeId(uuid::Uuid::new_v4());
        fs::create_dir_all(store.folder_with(id, suffix).join("extents")).unwrap();
    }
    assert_eq!(store.remove_leftovers().unwrap(), 2);
    let scan = store.scan().unwrap();
    assert_eq!((scan.volumes, scan.strangers.len()), (vec![volume], 0));
}

#[test]
fn faults_are_named() {
    let (_folder, store, volume) = store();
    store.create(volume, 3 * GIB, b"{}").unwrap();
    let extents = store.extents(volume);
    fs::remove_file(extents.join("00000001")).unwrap();
    File::create(extents.join("00000002")).unwrap().set_len(5).unwrap();
    let faults = check_extents(&extents, 3 * GIB);
    assert_eq!(faults.iter().map(|f| f.extent).collect::<Vec<_>>(), [1, 2]);
    assert!(faults[0].message.ends_with("00000001 is missing"), "{}", faults[0].message);
    assert!(faults[1].message.contains("has 5 bytes"), "{}", faults[1].message);
}

#[test]
fn records_are_replaced_one_by_one_and_in_bulk() {
    let (_folder, store, volume) = store();
    store.create(volume, GIB, b"1").unwrap();
    let update = |content: &[u8]| RecordUpdate { volume, content: content.to_vec() };
    store.write_records(&[update(b"2")]).unwrap();
    assert_eq!(store.read_record(volume).unwrap().unwrap(), b"2");
    let mut many: Vec<_> = (0..20)
        .map(|_| RecordUpdate { volume: VolumeId(uuid::Uuid::new_v4()), content: b"3".to_vec() })
        .collect();
    many.iter().for_each(|u| store.create(u.volume, 4096, b"1").unwrap());
    many.push(update(b"3"));
    store.write_records(&many).unwrap();
    assert!(many.iter().all(|u| store.read_record(u.volume).unwrap().unwrap() == b"3"));
    assert_eq!(store.read_record(VolumeId(uuid::Uuid::nil())).unwrap(), None);
}
