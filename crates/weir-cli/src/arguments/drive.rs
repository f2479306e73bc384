//! Arguments of the commands about drives.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use weir_types::Emulation;

use super::ReadArguments;
use super::pool::queue_target;
use weir_api_types::{DriveClass, IoPriority};

/// The changes; at least one is required.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct DriveChanges {
    /// Class of the drive, or 'auto' for the class of its latest measurement
    #[arg(long, value_name = "CLASS|auto", value_enum, ignore_case = true, visible_alias = "io-priority")]
    pub class: Option<DriveClass>,
    /// Zone of the drive, or 'none' for the zone of its node; existing replicas stay where they are
    #[arg(long, value_name = "ZONE|none")]
    pub zone: Option<String>,
    /// Rack of the drive within the zone, or 'none'
    #[arg(long, value_name = "RACK|none")]
    pub rack: Option<String>,
}

/// Arguments of the addition of a drive.
#[derive(Debug, Args)]
pub struct DriveAddArguments {
    /// Directory or block device, on the daemon's host
    pub directory: PathBuf,
    /// Create an XFS filesystem on the block device and mount it. Weir refuses a device that holds data
    /// or is in use
    #[arg(long)]
    pub format: bool,
    /// Name of the drive [default: that of the directory or device]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Emulate a drive: operations per second, bandwidth [default: unlimited], latency [default: 0], seek
    /// time [default: 0], flush time [default: as each operation], and operations served in parallel
    /// [default: unlimited]. Or emulate a kind: ebs-io1, ebs-gp2, ebs-standard, hdd-7200, sata-ssd or
    /// nvme; parameters after the kind override it. All output shows the drive as emulated
    #[arg(
        long,
        value_name = "[KIND,]iops=N,bandwidth=RATE,latency=TIME,seek=TIME,flush=TIME,parallel=N",
        value_parser = Emulation::parse,
        allow_hyphen_values = true
    )]
    pub emulate: Option<Emulation>,
    /// Maximum number of operations in flight, 1 to 1024, or 'auto': found by trials while volumes
    /// compete [default: auto]
    #[arg(long, value_name = "auto|N", value_parser = queue_target, allow_hyphen_values = true)]
    pub queue_target: Option<u32>,
    /// Class of the drive [default: that of its first measurement]
    #[arg(long, value_name = "CLASS", value_enum, ignore_case = true, visible_alias = "io-priority")]
    pub class: Option<IoPriority>,
    /// Zone of the drive: replicas of an extent are placed in different zones if possible [default: that
    /// of its node]
    #[arg(long, value_name = "ZONE|none")]
    pub zone: Option<String>,
    /// Rack of the drive within the zone
    #[arg(long, value_name = "RACK|none")]
    pub rack: Option<String>,
    /// Do not measure the drive
    #[arg(long)]
    pub no_measurement: bool,
    /// Do not wait for the measurement
    #[arg(long)]
    pub no_wait: bool,
}

/// Commands about drives.
#[derive(Debug, Subcommand)]
pub enum DriveCommand {
    /// Add an existing directory as a drive, or a block device, which is formatted
    #[command(
        visible_alias = "create",
        after_help = "Example:\n  weir drive add /srv/drive1\n  weir drive add /dev/sdb --format\n  weir drive add /srv/old --class low --no-measurement\n  weir drive add /srv/slow --name slow --emulate iops=21000,bandwidth=250MB/s,latency=200us\n  weir drive add /srv/disk --emulate hdd-7200\n  weir drive add /srv/far --emulate nvme,latency=1ms"
    )]
    Add(DriveAddArguments),
    /// List drives
    #[command(after_help = "Example:\n  weir drive list\n  weir drive list -o wide")]
    List(ReadArguments),
    /// Show a drive with all its fields, or list the drives
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir drive show slow -o yaml")]
    Show {
        /// The drive
        #[arg(value_name = "DRIVE")]
        name: Option<String>,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Use a drive again although it may have lost acknowledged writes
    #[command(
        after_help = "Replicas there are resynced if others have everything. Extents that no other replica has are used as they are:\nbring other missing drives back first.\n\n\
                      Example:\n  weir drive accept slow\n  weir drive accept slow --yes"
    )]
    Accept {
        /// The drive
        #[arg(value_name = "DRIVE")]
        name: String,
    },
    /// Measure the performance of a drive while it is in use
    #[command(after_help = "Example:\n  weir drive measure slow\n  weir drive measure slow --no-wait")]
    Measure {
        /// The drive
        #[arg(value_name = "DRIVE")]
        name: String,
        /// Wait for the measurement, which is the default
        #[arg(long, conflicts_with = "no_wait")]
        wait: bool,
        /// Do not wait for the measurement
        #[arg(long)]
        no_wait: bool,
    },
    /// Set the class, zone or rack of a drive; the class cannot change while the drive holds volumes
    #[command(
        visible_alias = "update",
        after_help = "Example:\n  weir drive modify slow --class medium\n  weir drive modify slow --class auto\n  weir drive modify slow --zone a --rack r1"
    )]
    Modify {
        /// The drive
        #[arg(value_name = "DRIVE")]
        name: String,
        #[command(flatten)]
        changes: DriveChanges,
    },
    /// Remove a drive; its content is moved to other drives first, while it is in use. Its directory, or the
    /// filesystem on its block device, stays
    #[command(
        visible_alias = "delete",
        after_help = "Example:\n  weir drive remove slow\n  weir drive remove slow --wait\n  weir drive remove slow --cancel"
    )]
    Remove {
        /// The drive
        #[arg(value_name = "DRIVE")]
        name: String,
        /// Wait until the drive is empty and removed
        #[arg(long, conflicts_with = "cancel")]
        wait: bool,
        /// Cancel the removal; replicas that were moved stay where they are
        #[arg(long)]
        cancel: bool,
    },
}
