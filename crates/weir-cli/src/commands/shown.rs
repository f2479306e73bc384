//! Words for values that several commands show: classes, states and drives.

use weir_types::{Class, Emulation};

use weir_api_types::{DriveDevice, DriveEmulation, DriveState, IoPriority, VolumeLife};

/// Type of a drive. An emulated drive shows the name of its kind, or its parameters if no kind has them.
pub fn media_type(emulation: Option<DriveEmulation>, device: Option<&DriveDevice>) -> String {
    match (emulation, device) {
        (Some(emulation), _) => format!("emulated {}", Emulation::from(emulation)),
        (None, Some(device)) => kind(device).to_owned(),
        (None, None) => "directory".to_owned(),
    }
}

/// Kind of a block device, as the kernel reports it.
pub fn kind(device: &DriveDevice) -> &'static str {
    if device.is_rotational { "rotating device" } else { "solid-state device" }
}

/// Location of a drive as the user gave it: its block device or its folder.
pub fn location(path: &str, device: Option<&DriveDevice>) -> String {
    device.map_or(path, |device| &device.path).to_owned()
}

/// Name of a drive, with its emulation if it is emulated.
pub fn labelled(name: &str, emulation: Option<DriveEmulation>) -> String {
    match emulation {
        None => name.to_owned(),
        Some(_) => format!("{name} ({})", media_type(emulation, None)),
    }
}

/// State of a drive, in a word.
pub fn state(state: DriveState) -> &'static str {
    match state {
        DriveState::Online => "online",
        DriveState::Missing => "missing",
    }
}

/// Name of a class, also for a drive, pool or volume whose class is unknown.
pub fn class(priority: Option<IoPriority>) -> String {
    priority.map_or("not known".to_owned(), |priority| Class::from(priority).to_string())
}

/// Life-cycle state of a volume, in a word.
pub fn life(state: VolumeLife) -> &'static str {
    match state {
        VolumeLife::Creating => "creating",
        VolumeLife::Online => "online",
        VolumeLife::Deleting => "deleting",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use weir_api_types::{Drive, DriveEmulation, DriveState, DriveUse};

    /// Returns a missing drive.
    pub fn drive(emulation: Option<DriveEmulation>) -> Drive {
        Drive {
            id: uuid::Uuid::nil(),
            version: 0,
            name: "slow".to_owned(),
            path: "/srv/slow".to_owned(),
            device: None,
            emulation,
            role: DriveUse::Data,
            state: DriveState::Missing,
            reason: Some("there is none".to_owned()),
            size_bytes: None,
            used_bytes: None,
            available_bytes: None,
            space_age_ns: None,
            volumes: 2,
            shares_space: false,
            provisioned_bytes: 2 << 30,
            class: None,
            class_reason: "not measured yet".to_owned(),
            measurement: None,
            measurement_progress: None,
            measurement_failure: None,
            zone: None,
            rack: None,
            drain: None,
            created_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }
}
