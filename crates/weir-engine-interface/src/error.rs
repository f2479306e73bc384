//! Errors of the engine.

use weir_types::VolumeId;

/// Why the engine could not carry out a command.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A reactor could not be started.
    #[error("cannot start reactor {index}: {source}")]
    Start {
        /// Index of the reactor.
        index: usize,
        /// The cause.
        source: std::io::Error,
    },
    /// The volume is not open here.
    #[error("volume {0} is not open")]
    UnknownVolume(VolumeId),
    /// The volume takes no further client.
    #[error("volume {0} takes no further client now")]
    ClientRefused(VolumeId),
    /// Another recording runs.
    #[error("another recording is under way; one runs at a time")]
    Recording,
    /// The drives of the volume do not answer.
    #[error("the drives of volume {0} do not answer")]
    Silent(VolumeId),
    /// An added replica of an extent could not be recorded.
    #[error("a replica of volume {volume} cannot be added: {reason}")]
    NotAdded {
        /// The volume.
        volume: VolumeId,
        /// The reason, in words.
        reason: String,
    },
    /// No snapshot of the volume could be taken.
    #[error("volume {volume} cannot be snapshotted: {reason}")]
    SnapshotRefused {
        /// The volume.
        volume: VolumeId,
        /// The reason, in words.
        reason: String,
    },
    /// A volume of a snapshot could not be quiesced together with the others, although it was tried several
    /// times, or it is about to close. It may succeed when it is tried again.
    #[error(
        "volume {0} could not be quiesced together with the others, because the host is busy or the volume is about \
         to close; try again"
    )]
    SnapshotNotNow(VolumeId),
    /// The reactor's thread has ended.
    #[error("the reactor of volume {0} has stopped")]
    Stopped(VolumeId),
}
