//! `weir drive`: commands about drives.

use std::io::Write;
use std::path::Path;

use weir_types::Emulation;

use super::super::arguments::{DriveAddArguments, DriveChanges, DriveCommand};
use super::super::client::{Client, segment};
use super::super::errors::CommandError;
use super::super::output::{self, ListColumn, optional_size, or_dash, rough_size};
use super::shown::{kind, location, media_type};
use super::{drain, measuring};
use weir_api_types::{Drive, DriveCreate, DriveDevice, DriveModify, DriveUse, Operation};
use weir_client::ClientError;
use weir_client::Items;

/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 24;

/// Columns of the list.
const COLUMNS: &[ListColumn<Drive>] = &[
    ListColumn::text("Drive", |drive| drive.name.clone()),
    ListColumn::text("Path", |drive| location(&drive.path, drive.device.as_ref())),
    ListColumn::text("Media Type", |drive| media_type(drive.emulation, drive.device.as_ref())),
    ListColumn::text("Class", measuring::class),
    ListColumn::text("Zone", |drive| or_dash(&drive.zone)),
    ListColumn::text("Rack", |drive| or_dash(&drive.rack)),
    ListColumn::number("Size", |drive| optional_size(drive.size_bytes)),
    ListColumn::wide_number("Used", |drive| optional_size(drive.used_bytes)),
    ListColumn::number("Available", |drive| optional_size(drive.available_bytes)),
    ListColumn::number("Volumes", |drive| drive.volumes.to_string()),
    ListColumn::number("Provisioned", |drive| rough_size(drive.provisioned_bytes)),
    ListColumn::text("State", drain::state),
    ListColumn::wide_text("Role", |drive| role(drive).to_owned()),
    ListColumn::wide_text("Snapshots", snapshots),
    ListColumn::wide_number("Version", |drive| drive.version.to_string()),
    ListColumn::wide_text("Added", |drive| drive.created_at.to_string()),
    ListColumn::wide_text("Drive ID", |drive| drive.id.to_string()),
];

/// Use of a drive, in a word.
fn role(drive: &Drive) -> &'static str {
    match drive.role {
        DriveUse::Data => "data",
        DriveUse::Journal => "journal",
    }
}

/// Adds a drive for a use, and shows its class once it is measured.
pub fn add(client: &Client, arguments: &DriveAddArguments, role: DriveUse) -> Result<(), CommandError> {
    let request = DriveCreate {
        path: absolute(&arguments.directory)?,
        format: arguments.format,
        name: arguments.name.clone(),
        emulation: arguments.emulate.map(Into::into),
        queue_target: arguments.queue_target,
        role,
        class: arguments.class,
        zone: arguments.zone.clone(),
        rack: arguments.rack.clone(),
        measure: !arguments.no_measurement,
    };
    if request.format {
        let question = format!("Format '{}', which destroys what is on it?", request.path);
        client.options().confirm(&question)?;
    }
    let existing = || {
        let list: Items<Drive> = client.list("/v1/drives", &[])?;
        let is_it = |drive: &Drive| {
            drive.role == role && location(&drive.path, drive.device.as_ref()) == request.path
        };
        Ok(list.items.into_iter().find(is_it))
    };
    let drive: Drive = client.create("/v1/drives", &request, existing)?;
    client.tell(&drive.name)?;
    if request.measure && !arguments.no_wait { tell_class(client, &drive) } else { Ok(()) }
}

/// Runs a command about drives.
pub fn run(client: &Client, command: DriveCommand) -> Result<(), CommandError> {
    match command {
        DriveCommand::Add(arguments) => add(client, &arguments, DriveUse::Data),
        DriveCommand::Accept { name } => {
            let question =
                format!("Use drive '{name}' as it is, though acknowledged writes to it may be lost?");
            client.options().confirm(&question)?;
            client.post::<Drive>(&format!("{}/accept", path(&name)), &[], &()).map(|_| ())
        }
        DriveCommand::Measure { name, no_wait, .. } => {
            client.post::<Operation>(&format!("{}/measure", path(&name)), &[], &())?;
            if no_wait {
                return Ok(());
            }
            let measured = measuring::wait(client, &path(&name))?;
            client.tell(&measured.class_reason)
        }
        DriveCommand::Modify { name, changes: DriveChanges { class, zone, rack } } => {
            let request = DriveModify { class, zone, rack };
            client.patch::<Drive>(&path(&name), &[], &request).map(|_| ())
        }
        DriveCommand::List(read) | DriveCommand::Show { name: None, read } => {
            output::list(&client.list("/v1/drives", &[])?, read.output, COLUMNS)
        }
        DriveCommand::Show { name: Some(name), read } => {
            let drive: Drive = client.get(&path(&name), &[])?;
            output::show(&drive, read.output, description)
        }
        DriveCommand::Remove { name, cancel: true, .. } => drain::cancel(client, &path(&name)),
        DriveCommand::Remove { name, wait, .. } => drain::remove(client, &path(&name), wait),
    }
}

/// Waits until a new drive is measured, and prints its class. The drive exists even if the measurement fails,
/// so standard output has only its name.
fn tell_class(client: &Client, drive: &Drive) -> Result<(), CommandError> {
    let words = match measuring::wait(client, &path(&drive.name)) {
        Ok(measured) => measured.class_reason,
        Err(CommandError::Failed(reason)) => reason,
        Err(CommandError::Request(ClientError::Answered(problem))) => problem.message(),
        Err(error) => return Err(error),
    };
    // The output may fail: the user may have closed standard error.
    let _ = writeln!(std::io::stderr(), "{words}");
    Ok(())
}

fn path(name: &str) -> String {
    format!("/v1/drives/{}", segment(name))
}

/// Absolute path of the directory, because the daemon has another current directory.
fn absolute(directory: &Path) -> Result<String, CommandError> {
    let shown = directory.display();
    let path = std::path::absolute(directory)
        .map_err(|error| CommandError::Usage(format!("directory '{shown}': {error}")))?;
    let usage =
        |_| CommandError::Usage(format!("directory '{shown}' is not UTF-8; only such paths are accepted"));
    path.into_os_string().into_string().map_err(usage)
}

fn snapshots(drive: &Drive) -> String {
    if drive.shares_space { "share space" } else { "are copied" }.to_owned()
}

fn described(device: &DriveDevice) -> String {
    format!("{}, {}, XFS filesystem {}", device.path, kind(device), device.filesystem)
}

fn description(drive: &Drive) -> String {
    let reason = drive.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let mut fields = vec![
        ("Drive", drive.name.clone()),
        ("Drive ID", drive.id.to_string()),
        ("Version", drive.version.to_string()),
        ("Path", drive.path.clone()),
        ("Device", drive.device.as_ref().map_or("-".to_owned(), described)),
        ("Media Type", media_type(drive.emulation, drive.device.as_ref())),
        ("Emulation", drive.emulation.map_or("-".to_owned(), |of| Emulation::from(of).parameters())),
        ("State", format!("{}{reason}", drain::state(drive))),
        ("Size", optional_size(drive.size_bytes)),
        ("Used", optional_size(drive.used_bytes)),
        ("Available", optional_size(drive.available_bytes)),
        (
            "Space Read",
            drive.space_age_ns.map_or("-".to_owned(), |age| format!("{} s ago", age / 1_000_000_000)),
        ),
        ("Volumes", drive.volumes.to_string()),
        ("Provisioned", rough_size(drive.provisioned_bytes)),
        ("Snapshots", snapshots(drive)),
        ("Role", role(drive).to_owned()),
        ("Zone", or_dash(&drive.zone)),
        ("Rack", or_dash(&drive.rack)),
        ("Added", drive.created_at.to_string()),
    ];
    fields.extend(measuring::fields(drive));
    output::fields(LABEL_WIDTH, &fields)
}

#[cfg(test)]
mod tests {
    use super::super::shown::labelled;
    use super::super::shown::tests::drive;
    use super::*;

    #[test]
    fn emulated_drive_is_shown_as_emulated() {
        let emulation = Emulation::even(2000, Some(250_000_000), 200_000);
        let drive = drive(Some(emulation.into()));
        let words = "emulated iops=2000,bandwidth=250MB/s,latency=200us";
        assert!(description(&drive).contains(&format!("Media Type: {words}\n")));
        let label = labelled("slow", drive.emulation);
        assert_eq!(label, format!("slow ({words})"));
        let table = output::list_table(&[drive], COLUMNS, false);
        assert!(table.contains(words), "{table}");
    }

    #[test]
    fn emulated_drive_shows_its_kind_and_parameters() {
        let emulation = weir_types::EmulationKind::EbsIo1.emulation();
        let drive = drive(Some(emulation.into()));
        let text = description(&drive);
        let fields =
            ["Media Type: emulated ebs-io1\n", "Emulation: iops=10346,bandwidth=320MB/s,latency=483344ns\n"];
        assert!(fields.iter().all(|field| text.contains(field)), "{text}");
        assert_eq!(labelled("fast", drive.emulation), "fast (emulated ebs-io1)");
    }

    #[test]
    fn missing_drive_shows_the_reason_and_no_sizes() {
        let text = description(&drive(None));
        for words in ["Media Type: directory\n", "State: missing: there is none\n", "Size: -\n", "2GiB\n"] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }

    #[test]
    fn block_device_is_shown_by_path_and_kind() {
        let device = DriveDevice {
            path: "/dev/sdb".to_owned(),
            filesystem: uuid::Uuid::from_u128(1),
            is_rotational: true,
        };
        let rotating = Drive { device: Some(device.clone()), ..drive(None) };
        let text = description(&rotating);
        for words in [
            "Path: /srv/slow\n",
            "Device: /dev/sdb, rotating device, XFS filesystem 00000000-0000-0000-0000-000000000001\n",
            "Media Type: rotating device\n",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
        let shown = output::list_table(std::slice::from_ref(&rotating), COLUMNS, false);
        assert!(shown.contains("/dev/sdb") && !shown.contains("/srv/slow"), "{shown}");
        let solid = DriveDevice { is_rotational: false, ..device };
        assert_eq!(media_type(None, Some(&solid)), "solid-state device");
        let emulation = weir_types::EmulationKind::Nvme.emulation();
        assert_eq!(media_type(Some(emulation.into()), Some(&solid)), "emulated nvme");
    }

    #[test]
    fn directory_is_sent_as_an_absolute_path() {
        assert_eq!(absolute(Path::new("/srv/slow")).unwrap(), "/srv/slow");
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute(Path::new("x/y")).unwrap(), here.join("x/y").display().to_string());
    }
}
