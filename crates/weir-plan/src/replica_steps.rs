//! The order of the durable steps in which a replica of an extent comes or goes.
//!
//! A replica comes in the order file, replica metadata, record, and goes in the order replica metadata, record, file. So
//! no replica counts as in sync that the record does not name. A crash between two steps leaves something that
//! [`next_step`] takes back or takes away, or a file that nothing names.
//!
//! [`next_step`]: crate::replica_plan::next_step

/// One step of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make the file of the replica. It holds nothing.
    MakeFile,
    /// Have the volume write replica metadata that names the replica.
    AddToVolume,
    /// Have the record name the replica.
    Record,
    /// Tell the volume that the record names the replica: from now on the replica may become in sync.
    ConfirmAdded,
    /// Have the volume write replica metadata that does not name the replica.
    RemoveFromVolume,
    /// Have the record name the replica no more.
    Unrecord,
    /// Delete the file of the replica.
    DeleteFile,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The step is done, durably.
    Done,
    /// The step cannot be done now, and has changed nothing.
    Refused,
}

/// A change of one replica that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaChange {
    next: Option<Action>,
    /// The record names the replica when its removal begins.
    is_recorded: bool,
    has_come_about: bool,
}

impl ReplicaChange {
    /// A replica that comes.
    pub fn add() -> ReplicaChange {
        ReplicaChange { next: Some(Action::MakeFile), is_recorded: false, has_come_about: false }
    }

    /// A replica that goes. A record that does not name it needs no change.
    pub fn remove(is_recorded: bool) -> ReplicaChange {
        ReplicaChange { next: Some(Action::RemoveFromVolume), is_recorded, has_come_about: false }
    }

    /// The step that is to be carried out; `None` once the change has ended.
    pub fn next(&self) -> Option<Action> {
        self.next
    }

    /// True if the replica has come or gone for good. If not, the change has to begin anew from what is there.
    pub fn has_come_about(&self) -> bool {
        self.has_come_about
    }

    /// The step that [`ReplicaChange::next`] named has ended.
    pub fn ended(&mut self, outcome: Outcome) {
        let action = self.next.take().expect("a step is named before it ends");
        self.next = match (action, outcome) {
            (Action::MakeFile, Outcome::Done) => Some(Action::AddToVolume),
            (Action::AddToVolume, Outcome::Done) => Some(Action::Record),
            (Action::AddToVolume, Outcome::Refused) => Some(Action::DeleteFile),
            (Action::Record, Outcome::Done) => Some(Action::ConfirmAdded),
            (Action::RemoveFromVolume, Outcome::Done) if self.is_recorded => Some(Action::Unrecord),
            (Action::RemoveFromVolume | Action::Unrecord, Outcome::Done) => Some(Action::DeleteFile),
            _ => None,
        };
        let is_last_of_all = matches!(action, Action::Record | Action::RemoveFromVolume | Action::Unrecord);
        self.has_come_about |= is_last_of_all && outcome == Outcome::Done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(mut change: ReplicaChange, refused: Option<Action>) -> (Vec<Action>, bool) {
        let mut steps = Vec::new();
        while let Some(action) = change.next() {
            steps.push(action);
            change.ended(if Some(action) == refused { Outcome::Refused } else { Outcome::Done });
        }
        (steps, change.has_come_about())
    }

    #[test]
    fn replica_comes_as_file_metadata_record_and_goes_as_metadata_record_file() {
        use Action::{AddToVolume, ConfirmAdded, DeleteFile, MakeFile, Record, RemoveFromVolume, Unrecord};
        for (change, refused, expected) in [
            (ReplicaChange::add(), None, (vec![MakeFile, AddToVolume, Record, ConfirmAdded], true)),
            (ReplicaChange::add(), Some(MakeFile), (vec![MakeFile], false)),
            (ReplicaChange::add(), Some(AddToVolume), (vec![MakeFile, AddToVolume, DeleteFile], false)),
            (ReplicaChange::add(), Some(Record), (vec![MakeFile, AddToVolume, Record], false)),
            (ReplicaChange::remove(true), None, (vec![RemoveFromVolume, Unrecord, DeleteFile], true)),
            (ReplicaChange::remove(false), None, (vec![RemoveFromVolume, DeleteFile], true)),
            (ReplicaChange::remove(true), Some(RemoveFromVolume), (vec![RemoveFromVolume], false)),
        ] {
            assert_eq!(steps(change, refused), expected, "{change:?} {refused:?}");
        }
    }
}
