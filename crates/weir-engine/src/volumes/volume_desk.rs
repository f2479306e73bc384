//! Volume desk: what the volumes of a reactor share, and each may use while it works.

use crate::drive_queue::DriveQueues;
use crate::io::Io;
use crate::volumes::late_answers::LateAnswers;
use crate::volumes::schedules::Schedules;

/// What a volume may use of its reactor while it works.
pub struct Desk<'a> {
    pub io: &'a mut Io,
    pub queues: &'a mut DriveQueues,
    pub answers: &'a mut LateAnswers,
    pub schedules: &'a mut Schedules,
}

impl Desk<'_> {
    /// The same desk, for a part of the work.
    pub fn lend(&mut self) -> Desk<'_> {
        Desk { io: self.io, queues: self.queues, answers: self.answers, schedules: self.schedules }
    }
}
