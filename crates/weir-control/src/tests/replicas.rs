//! Tests of volumes with several replicas of each extent, against real files.

use weir_volume::mirror::{EpochRecord, ReplicaState};

use super::*;
use crate::alarms::AlarmSource;
use crate::drives::AddDrive;
use crate::records::VolumeRecord;
use weir_store::epoch_record;
use weir_store::replica_metadata::{self, metadata_file_name};
use weir_types::ExtentIndex;
use weir_types::control_bounds::REPLICAS_MAX;

/// A drive of class high in a zone and a rack, as if it had been measured.
fn drive_in(world: &World, state: &Path, text: &str, zone: Option<&str>, rack: Option<&str>) -> DriveId {
    let path = state.join(text);
    std::fs::create_dir_all(&path).unwrap();
    let (zone, rack, class) = (zone.map(name), rack.map(name), Some(Class::High));
    let request = AddDrive { zone, rack, class, ..AddDrive::new(path) };
    world.control.drives.add_drive(request).unwrap().record.id
}

fn drives(world: &World, state: &Path, names: &[&str]) -> Vec<DriveId> {
    names.iter().map(|text| drive_in(world, state, text, None, None)).collect()
}

fn copied(text: &str, size_bytes: u64, replicas: u8) -> CreateVolume {
    CreateVolume {
        io_priority: Some(Class::High),
        replicas: Some(replicas),
        ..volume(None, text, size_bytes)
    }
}

fn record(world: &World, text: &str) -> VolumeRecord {
    world.control.views.volume(None, &name(text)).unwrap().record
}

/// The path of a replica's extent file, or of its metadata.
fn path_of(world: &World, record: &VolumeRecord, drive: DriveId, file: &str) -> PathBuf {
    world.control.core.store(drive).unwrap().extents(record.id).join(file)
}

/// The alarms about a volume's replicas, and whether the volume is served.
fn seen(world: &World, text: &str) -> (Vec<String>, bool) {
    let alarms = world.control.alarms.alarms().into_iter();
    let about = alarms.filter(|alarm| alarm.source == AlarmSource::Replicas);
    (about.map(|alarm| alarm.message).collect(), world.exports.find(text).is_some())
}

/// True if the epochs of the third extent are above all epochs that an earlier third extent had.
fn grew_back(world: &World, id: VolumeId) -> bool {
    let epoch_records = epoch_record::read_all(&world.control.core.epoch_records(id), 3).unwrap();
    epoch_records[2].allocated > 1 << 40
}

/// Checks that each extent has its number of complete replicas with matching replica metadata, and an epoch
/// record.
fn assert_whole(world: &World, record: &VolumeRecord) {
    let extents = record.size_bytes.div_ceil(EXTENT_BYTES);
    let epoch_records =
        epoch_record::read_all(&world.control.core.epoch_records(record.id), extents).unwrap();
    for extent in ExtentIndex::all_of(record.size_bytes) {
        let EpochRecord { allocated, committed, is_failed } = epoch_records[extent.index()];
        assert!(allocated == committed && committed > 0 && !is_failed);
        let replicas: Vec<_> = record.placement.replicas_of(extent).collect();
        assert_eq!(replicas.len(), usize::from(record.replicas));
        for (slot, drive) in replicas {
            let found = replica_metadata::read(&path_of(world, record, drive, &metadata_file_name(extent)));
            let found = found.unwrap().expect("replica metadata lies beside each replica");
            assert_eq!((found.epoch, found.replica_states[slot]), (committed, ReplicaState::InSync));
            let in_sync =
                found.replica_states.iter().filter(|replica_state| **replica_state == ReplicaState::InSync);
            assert_eq!(in_sync.count(), usize::from(record.replicas));
            assert!(found.dirty.is_empty() && found.out_of_sync.iter().all(|set| set.is_empty()));
        }
    }
    assert!(world.control.serving.extents.extent_faults(record.id).is_empty());
}

#[test]
fn replicas_and_metadata_are_created_resized_and_deleted_with_volume() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let homes = drives(&world, &state, &["one", "two", "three"]);
    for replicas in 2..=REPLICAS_MAX {
        let view = world.control.volumes.create_volume(copied("vol1", 4 * GIB, replicas)).unwrap();
        let id = view.record.id;
        assert_eq!((view.record.replicas, view.replica_drives.len()), (replicas, usize::from(replicas)));
        assert_eq!(view.class, Some(Class::High));
        assert_whole(&world, &view.record);
        let provisioned = || -> u64 {
            let of = |text| world.control.drives.drive(&name(text)).unwrap().provisioned_bytes;
            ["one", "two", "three"].into_iter().map(of).sum()
        };
        assert_eq!(provisioned(), 4 * GIB * u64::from(replicas), "every replica counts");
        for gib in [7, 2, 5] {
            world.control.volumes.resize_volume(None, &name("vol1"), gib * GIB, true, None).unwrap();
            assert_whole(&world, &record(&world, "vol1"));
            assert_eq!(grew_back(&world, id), gib == 5);
            assert_eq!(provisioned(), gib * GIB * u64::from(replicas));
        }
        settle(&world.control);
        assert_eq!(world.control.alarms.alarms(), []);
        world.control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()).unwrap();
        settle(&world.control);
        for drive in &homes {
            assert_eq!(world.control.core.store(*drive).unwrap().scan().unwrap().volumes, []);
        }
        assert!(!world.control.core.epoch_records(id).exists());
    }
}

#[test]
fn single_replica_has_no_metadata_and_no_epoch_record() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let homes = drives(&world, &state, &["one", "two"]);
    let made = world.control.volumes.create_volume(copied("vol1", 3 * GIB, 1)).unwrap().record;
    assert!(!world.control.core.epoch_records(made.id).exists());
    for drive in homes {
        let files = std::fs::read_dir(world.control.core.store(drive).unwrap().extents(made.id)).unwrap();
        let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(names.into_iter().all(|file| file.len() == 8));
    }
    assert_eq!(world.control.serving.extents.recovered_extents(&made).unwrap(), []);
    assert_eq!(world.control.serving.extents.new_recovered_extents(&made, 1, 1), []);
}

#[test]
fn replicated_volume_is_served_unchanged_after_restart() {
    let (_folder, state) = state();
    let world = World::start(&state);
    drives(&world, &state, &["one", "two", "three"]);
    world.control.volumes.create_volume(copied("vol1", 3 * GIB, 2)).unwrap();
    let before = record(&world, "vol1");
    world.end();
    let world = World::start(&state);
    assert_eq!((record(&world, "vol1"), seen(&world, "vol1")), (before.clone(), (vec![], true)));
    let recovered_extents = world.control.serving.extents.recovered_extents(&before).unwrap();
    assert_eq!(
        recovered_extents,
        world.control.serving.extents.new_recovered_extents(&before, 0, 1),
        "as though it were new"
    );
    let whole = [true, true, false, false];
    assert!(
        recovered_extents.len() == 3
            && recovered_extents.iter().all(|b| b.is_there == whole && b.is_confirmed)
    );
    world.end();
    std::fs::remove_file(state.join("catalogue.sqlite")).unwrap();
    let world = World::try_start(&state, true).unwrap();
    assert_eq!(record(&world, "vol1"), before, "the backups of the record say where it lies");
    assert_eq!(world.control.alarms.alarms(), []);
}

#[test]
fn too_many_replicas_are_refused_with_available_drives() {
    let (_folder, state) = state();
    let world = World::start(&state);
    drives(&world, &state, &["one", "two"]);
    let (kind, message) = error(world.control.volumes.create_volume(copied("vol1", GIB, 3)));
    assert!(kind == ErrorKind::Full && message.contains("on 2 drives"), "{message}");
    for replicas in [0, 4] {
        let (kind, message) = error(world.control.volumes.create_volume(copied("vol1", GIB, replicas)));
        assert!(kind == ErrorKind::Invalid && message.ends_with("1 to 3 are"), "{message}");
    }
    let on_one = CreateVolume { drive: Some(name("one")), ..copied("vol1", GIB, 2) };
    let (kind, message) = error(world.control.volumes.create_volume(on_one));
    assert!(kind == ErrorKind::Invalid && message.contains("one of 2 replicas"), "{message}");
    let limit = ModifyPool { over_provision_percent: Some(Some(100)), ..ModifyPool::default() };
    world.control.pools.modify_pool(&name("high"), limit).unwrap();
    let size_bytes = world.control.pools.pool(&name("high")).unwrap().summed_usage().size_bytes / GIB * GIB;
    let (kind, message) = error(world.control.volumes.create_volume(copied("vol1", size_bytes * 3 / 4, 2)));
    assert!(kind == ErrorKind::Full && message.contains("provisionable"), "{message}");
    assert!(world.control.volumes.create_volume(copied("vol1", size_bytes / GIB / 3 * GIB, 2)).is_ok());
}

#[test]
fn replicas_are_in_different_zones_or_refused_or_forced() {
    let (_folder, state) = state();
    let world = World::start(&state);
    for (text, zone, rack) in [("a1", "a", "r1"), ("a2", "a", "r2"), ("b1", "b", "r1"), ("b2", "b", "r2")] {
        drive_in(&world, &state, text, Some(zone), Some(rack));
    }
    let made = world.control.volumes.create_volume(copied("vol1", 4 * GIB, 2)).unwrap().record;
    let zone_of = |drive: DriveId| world.control.core.model().drives[&drive].record.zone.clone().unwrap();
    for extent in ExtentIndex::first(4) {
        let zones: Vec<Name> = made.placement.replicas_of(extent).map(|(_, drive)| zone_of(drive)).collect();
        assert!(zones.len() == 2 && zones[0] != zones[1], "{zones:?}");
    }
    let (kind, message) = error(world.control.volumes.create_volume(copied("vol2", GIB, 3)));
    assert!(kind == ErrorKind::Refused && message.contains("are in 2 zones; up to 2"), "{message}");
    assert_eq!(world.control.alarms.alarms(), []);
    let forced = CreateVolume { force: true, ..copied("vol2", GIB, 3) };
    world.control.volumes.create_volume(forced).unwrap();
    let (alarms, is_served) = seen(&world, "vol2");
    assert!(is_served && alarms == ["replicas of 1 of its extents share a zone and would fail together"]);
    let elsewhere = ModifyDrive { zone: Some(None), rack: Some(Some(name("r9"))), ..ModifyDrive::default() };
    for text in ["b1", "b2"] {
        let view = world.control.drives.modify_drive(&name(text), elsewhere.clone()).unwrap();
        assert_eq!((view.domain.zone, view.domain.rack.as_deref()), (None, Some("r9")));
    }
    assert_eq!(seen(&world, "vol2").0.len(), 1, "drives of which nothing is said are in one zone");
}

#[test]
fn volume_is_served_while_drive_of_one_replica_is_missing() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let homes = drives(&world, &state, &["one", "two"]);
    world.control.volumes.create_volume(copied("vol1", 3 * GIB, 2)).unwrap();
    world.control.volumes.create_volume(copied("single", 3 * GIB, 1)).unwrap();
    world.end();
    std::fs::rename(state.join("two"), state.join("away")).unwrap();
    let world = World::start(&state);
    let missing = "3 of the 6 replicas of its extents are missing, on: two".to_owned();
    assert_eq!(seen(&world, "vol1"), (vec![missing], true));
    assert!(world.exports.find("single").is_none());
    let alarms = world.control.alarms.alarms();
    let of_drive = alarms.iter().find(|alarm| alarm.volume.is_none()).unwrap();
    let words = "volumes out of service: 1, with other replicas: 1";
    assert!(of_drive.message.contains(words), "{alarms:?}");
    let record = record(&world, "vol1");
    let layout = world.control.serving.extents.layout(&record).unwrap();
    assert_eq!(layout.homes.len(), 2, "the drive keeps its place");
    let of_two = layout.homes.iter().find(|home| home.drive.id == homes[1]).unwrap();
    assert_eq!(of_two.directory, state.join("two/volumes").join(record.id.to_string()).join("extents"));
    for recovered_extent in world.control.serving.extents.recovered_extents(&record).unwrap() {
        assert_eq!(recovered_extent.is_there.iter().filter(|is_there| **is_there).count(), 1);
        assert_eq!(recovered_extent.metadata.epoch, 1);
    }
    assert!(world.control.views.volume(None, &name("vol1")).unwrap().used_bytes.is_some());
    assert_eq!(
        error(world.control.volumes.resize_volume(None, &name("vol1"), 5 * GIB, false, None)).0,
        ErrorKind::Refused
    );
    assert_eq!(
        error(world.control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default())).0,
        ErrorKind::Refused
    );
    world.end();
    std::fs::rename(state.join("away"), state.join("two")).unwrap();
    let world = World::start(&state);
    assert_eq!((seen(&world, "vol1"), world.control.alarms.alarms()), ((vec![], true), vec![]));
}

#[test]
fn unusable_replica_is_reported_and_others_serve() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let homes = drives(&world, &state, &["one", "two"]);
    let made = world.control.volumes.create_volume(copied("vol1", 5 * GIB, 2)).unwrap().record;
    let damage = |extent: ExtentIndex, what: &str| {
        let metadata = path_of(&world, &made, homes[0], &metadata_file_name(extent));
        match what {
            "no file" => std::fs::remove_file(metadata.with_extension("")).unwrap(),
            "short" => std::fs::write(metadata.with_extension(""), "short").unwrap(),
            "no metadata" => std::fs::remove_file(metadata).unwrap(),
            _ => std::fs::write(metadata, "nonsense").unwrap(),
        }
    };
    let all = ["no file", "short", "no metadata", "bad metadata"];
    (0..).map(ExtentIndex).zip(all).for_each(|(extent, what)| damage(extent, what));
    let recovered_extents = world.control.serving.extents.recovered_extents(&made).unwrap();
    let there =
        |extent: usize| recovered_extents[extent].is_there.iter().filter(|is_there| **is_there).count();
    assert_eq!((0..5).map(there).collect::<Vec<_>>(), [1, 1, 1, 1, 2]);
    world.end();
    let world = World::start(&state);
    let (alarms, is_served) = seen(&world, "vol1");
    assert!(is_served && alarms.len() == 2, "{alarms:?}");
    assert!(
        alarms[0].contains("one/volumes") && alarms[0].ends_with("00000002.metadata is missing"),
        "{alarms:?}"
    );
    assert!(alarms[1].contains("one/volumes") && alarms[1].contains("00000003.metadata"), "{alarms:?}");
    let files = || {
        let alarms = world.control.alarms.alarms().into_iter();
        alarms.filter(|alarm| alarm.source == AlarmSource::ExtentCheck).filter_map(|alarm| alarm.extent)
    };
    assert_eq!(files().collect::<Vec<_>>(), [0, 1].map(ExtentIndex));
    world.control.check_extent_files();
    assert_eq!(
        files().collect::<Vec<_>>(),
        [0, 1].map(ExtentIndex),
        "the look that is taken every second finds the same"
    );
    let of_data_plane = |alarm: &alarms::ActiveAlarm| alarm.source == AlarmSource::DataPlane;
    assert!(
        !world.control.alarms.alarms().iter().any(of_data_plane),
        "an extent with another replica is not given up"
    );
}

#[test]
fn volume_with_an_extent_without_in_sync_replica_is_not_served() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let homes = drives(&world, &state, &["one", "two"]);
    let made = world.control.volumes.create_volume(copied("vol1", 3 * GIB, 2)).unwrap().record;
    let path = world.control.core.epoch_records(made.id);
    let not_served = |words: &str| {
        let world = World::start(&state);
        let alarms = world.control.alarms.alarms();
        let of_volume = alarms.iter().find(|alarm| alarm.volume == Some(made.id)).unwrap();
        assert!(of_volume.message.contains(words) && world.exports.find("vol1").is_none(), "{alarms:?}");
    };
    let both = [path_of(&world, &made, homes[0], "00000001"), path_of(&world, &made, homes[1], "00000001")];
    world.end();
    epoch_record::know(&path, ExtentIndex(2), 5).unwrap();
    not_served("of extent 2, the newest metadata that can be reached has epoch 1, but epoch 5 is known of");
    both.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    not_served(
        "of extent 1, no replica that has everything can be reached (and 1 further extents cannot be served)",
    );
}

#[test]
fn interrupted_creation_is_deleted_with_its_epoch_records() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let homes = drives(&world, &state, &["one", "two"]);
    let made = world.control.volumes.create_volume(copied("vol1", 2 * GIB, 2)).unwrap().record;
    let path = world.control.core.epoch_records(made.id);
    world.control.core.mark_deleting(&made).unwrap();
    world.end();
    assert!(path.exists());
    let world = World::start(&state);
    settle(&world.control);
    assert!(!path.exists());
    for drive in homes {
        assert_eq!(world.control.core.store(drive).unwrap().scan().unwrap().volumes, []);
    }
}
