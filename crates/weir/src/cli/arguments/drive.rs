//! The commands about drives and their options.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use weir_types::Emulation;

use super::ReadArguments;
use super::pool::queue_target;
use crate::api::types::{DriveClass, IoPriority};

/// The changes, of which at least one must be given.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct DriveChanges {
    /// The class, or 'auto': that of its latest measurement
    #[arg(long, value_enum, ignore_case = true)]
    pub class: Option<DriveClass>,
    /// Zone that it is in, or 'none' for that of its node; what lies on it stays where it is
    #[arg(long, value_name = "ZONE|none")]
    pub zone: Option<String>,
    /// Rack within the zone that it is in, or 'none'
    #[arg(long, value_name = "RACK|none")]
    pub rack: Option<String>,
}

/// What to do with drives.
#[derive(Debug, Subcommand)]
pub enum DriveCommand {
    /// Make an existing directory a drive, or a block device that is formatted for that
    #[command(
        after_help = "Example:\n  weir drive add /srv/drive1\n  weir drive add /dev/sdb --format\n  weir drive add /srv/old --class low --no-measurement\n  weir drive add /srv/slow --name slow --emulate iops=21000,bandwidth=250MB/s,latency=200us\n  weir drive add /srv/disk --emulate hdd-7200\n  weir drive add /srv/far --emulate nvme,latency=1ms"
    )]
    Add {
        /// The directory or block device, on the daemon's host
        directory: PathBuf,
        /// Make an XFS filesystem on the block device, mount it and use that. It is refused if anything is on the
        /// device or anybody uses it
        #[arg(long)]
        format: bool,
        /// Name of the drive [default: that of the directory or device]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Behave like a drive of this many operations per second, this bandwidth [default: none] and this
        /// latency [default: 0], that takes this long to move elsewhere [default: 0] and for a flush
        /// [default: as each operation], and serves so many at a time [default: as many as come]; or like one
        /// of a kind (ebs-io1, ebs-gp2, ebs-standard, hdd-7200, sata-ssd, nvme), but for what is named after
        /// it. Shown as emulated wherever it is shown
        #[arg(
            long,
            value_name = "[KIND,]iops=N,bandwidth=RATE,latency=TIME,seek=TIME,flush=TIME,parallel=N",
            value_parser = Emulation::parse,
            allow_hyphen_values = true
        )]
        emulate: Option<Emulation>,
        /// Most operations to keep in flight, 1 to 1024, or 'auto': as many as trials find while volumes
        /// compete [default: auto]
        #[arg(long, value_name = "auto|N", value_parser = queue_target, allow_hyphen_values = true)]
        queue_target: Option<u32>,
        /// Class of what it delivers [default: that of its first measurement]
        #[arg(long, value_enum, ignore_case = true)]
        class: Option<IoPriority>,
        /// Zone that it is in: replicas of an extent go to different zones as far as can be [default: that of its node]
        #[arg(long, value_name = "ZONE|none")]
        zone: Option<String>,
        /// Rack within the zone that it is in
        #[arg(long, value_name = "RACK|none")]
        rack: Option<String>,
        /// Do not measure it
        #[arg(long)]
        no_measurement: bool,
        /// Do not wait until it is measured
        #[arg(long)]
        no_wait: bool,
    },
    /// Use a drive again whose acknowledged writes may be lost
    #[command(
        after_help = "Replicas there are resynced if others have everything. Extents that no other replica has are used as they are:\nbring other missing drives back first.\n\n\
                      Example:\n  weir drive accept slow\n  weir drive accept slow --yes"
    )]
    Accept {
        /// The drive
        name: String,
    },
    /// Measure what a drive delivers, while it is used
    #[command(after_help = "Example:\n  weir drive measure slow\n  weir drive measure slow --no-wait")]
    Measure {
        /// The drive
        name: String,
        /// Wait until it is measured, which is so anyway
        #[arg(long, conflicts_with = "no_wait")]
        wait: bool,
        /// Do not wait until it is measured
        #[arg(long)]
        no_wait: bool,
    },
    /// Give a drive a class by hand, while it has volumes only the one that it has; say where it is
    #[command(
        visible_alias = "update",
        after_help = "Example:\n  weir drive modify slow --class medium\n  weir drive modify slow --class auto\n  weir drive modify slow --zone a --rack r1"
    )]
    Modify {
        /// The drive
        name: String,
        #[command(flatten)]
        changes: DriveChanges,
    },
    /// List drives
    #[command(after_help = "Example:\n  weir drive list")]
    List(ReadArguments),
    /// Show everything about a drive
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir drive show slow -o yaml")]
    Show {
        /// The drive
        name: String,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Remove a drive; what it holds is moved to others first, while it is used. Its directory, or the filesystem on its
    /// block device, stays
    #[command(
        visible_alias = "delete",
        after_help = "Example:\n  weir drive remove slow\n  weir drive remove slow --wait\n  weir drive remove slow --cancel"
    )]
    Remove {
        /// The drive
        name: String,
        /// Wait until it is empty and gone
        #[arg(long, conflicts_with = "cancel")]
        wait: bool,
        /// Keep it after all; what has left it stays where it is
        #[arg(long)]
        cancel: bool,
    },
}
