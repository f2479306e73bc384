//! Return: the state of a replica whose drive was missing and is there again.
//!
//! A replica is used again only if nothing says that acknowledged writes may be missing in its files. A replica whose
//! files, or whose journal, are damaged, gone or replaced is made anew.

/// The file that is where an open file was before its drive went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundFile {
    /// The open file.
    Same,
    /// A file with the same inode number, which may be of another life of its filesystem.
    SameNumber,
    /// Another file, a damaged one, or none.
    Other,
}

/// The content of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// A replica of an extent.
    Replica,
    /// A write journal.
    Journal,
}

/// What becomes of an open file whose drive is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterReturn {
    /// The open file is used on.
    Keep,
    /// Acknowledged writes may be missing in the file that is there now: the replica is failed.
    Fail,
    /// The same, and the replica is made anew.
    FailAndReplace,
    /// The journal is given up, and the replicas behind it are made anew.
    GiveUpJournal,
}

/// What becomes of an open file whose drive is back, by the file that is in its place.
pub fn after_return(content: FileContent, found: FoundFile) -> AfterReturn {
    match (content, found) {
        (_, FoundFile::Same) => AfterReturn::Keep,
        (FileContent::Journal, _) => AfterReturn::GiveUpJournal,
        (FileContent::Replica, FoundFile::SameNumber) => AfterReturn::Fail,
        (FileContent::Replica, FoundFile::Other) => AfterReturn::FailAndReplace,
    }
}

/// The journal of a replica that could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalOf {
    /// The replica is behind no journal.
    None,
    /// The journal's drive is where it should be, or it is not.
    Known {
        /// True if it is.
        is_in_place: bool,
    },
    /// The journal's drive is missing.
    Missing,
    /// The journal is damaged, gone, or not known.
    Lost,
}

/// Whether a replica can be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The replica rejoins.
    Usable,
    /// The drive of its journal is away: it decides.
    Wait,
    /// The replica is made anew.
    Damaged,
}

/// What keeps a replica from being used, before its files are looked at; `None` if they decide.
pub fn before_files(is_drive_open: bool, is_replaced: bool, journal: JournalOf) -> Option<Verdict> {
    match journal {
        _ if !is_drive_open || is_replaced => Some(Verdict::Damaged),
        JournalOf::Known { is_in_place: false } | JournalOf::Missing => Some(Verdict::Wait),
        JournalOf::Lost => Some(Verdict::Damaged),
        JournalOf::None | JournalOf::Known { is_in_place: true } => None,
    }
}

/// Whether a replica can be used, by its files. A journal that went away while the files were looked at makes them say
/// nothing.
pub fn by_files(
    has_metadata: bool,
    is_file_whole: bool,
    is_journal_in_place: impl FnOnce() -> bool,
) -> Verdict {
    match has_metadata && is_file_whole {
        true => Verdict::Usable,
        false if is_journal_in_place() => Verdict::Damaged,
        false => Verdict::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_file_is_used_on() {
        use {AfterReturn::*, FileContent::*, FoundFile::*};
        for (content, found, expected) in [
            (Replica, Same, Keep),
            (Replica, SameNumber, Fail),
            (Replica, Other, FailAndReplace),
            (Journal, Same, Keep),
            (Journal, SameNumber, GiveUpJournal),
            (Journal, Other, GiveUpJournal),
        ] {
            assert_eq!(after_return(content, found), expected, "{content:?} {found:?}");
        }
    }

    #[test]
    fn absent_journal_is_waited_for_and_a_lost_one_makes_the_replica_anew() {
        let in_place = JournalOf::Known { is_in_place: true };
        for (is_drive_open, is_replaced, journal, expected) in [
            (true, false, JournalOf::None, None),
            (true, false, in_place, None),
            (true, false, JournalOf::Known { is_in_place: false }, Some(Verdict::Wait)),
            (true, false, JournalOf::Missing, Some(Verdict::Wait)),
            (true, false, JournalOf::Lost, Some(Verdict::Damaged)),
            (true, true, JournalOf::None, Some(Verdict::Damaged)),
            (false, false, JournalOf::Missing, Some(Verdict::Damaged)),
        ] {
            assert_eq!(before_files(is_drive_open, is_replaced, journal), expected, "{journal:?}");
        }
        assert_eq!(by_files(true, true, || unreachable!("it is whole")), Verdict::Usable);
        assert_eq!(by_files(false, true, || true), Verdict::Damaged);
        assert_eq!(by_files(true, false, || false), Verdict::Wait);
    }
}
