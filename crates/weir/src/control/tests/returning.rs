//! Drives that come back while the daemon runs, against real files.

use std::fs;

use weir_types::DriveId;

use super::*;
use crate::control::drives::AddDrive;

fn add(world: &World, path: PathBuf) -> DriveId {
    fs::create_dir_all(&path).unwrap();
    world.control.add_drive(AddDrive { class: Some(Class::High), ..AddDrive::new(path) }).unwrap().record.id
}

/// Broken if volumes of the one answer EIO for as long as something waits for the other, while both are shown as online.
#[test]
fn drive_is_shown_as_online_once_its_volumes_go_on_whatever_the_others_wait_for() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drives = ["one", "two"].map(|text| add(&world, state.join(text)));
    let request = CreateVolume { drive: Some(name("one")), ..volume(None, "vol1", GIB) };
    let volume = world.control.create_volume(request).unwrap().record.id;
    let rename_all = |from: &str, to: &str| {
        for text in ["one", "two"] {
            fs::rename(state.join(text.to_owned() + from), state.join(text.to_owned() + to)).unwrap();
        }
    };
    rename_all("", ".away");
    world.control.look_for_absences();
    assert!(drives.iter().all(|drive| world.control.absences.of(*drive).is_some()));
    rename_all(".away", "");
    std::thread::scope(|scope| {
        // What the first of them has to wait for before its volume is served again.
        let mut change = world.control.begin_volume_change(&[volume]).unwrap();
        change.beside(|| {
            scope.spawn(|| world.control.look_for_returns());
            let is_there = |drive: &DriveId| world.control.model().is_there(*drive);
            wait_until("both are there", || drives.iter().all(is_there));
            assert!(drives.iter().all(|drive| world.control.absences.of(*drive).is_none()));
        });
    });
}
