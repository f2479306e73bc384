//! The index: for each block, the record with its newest version. The module knows no order of events and
//! nothing of how space is used.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use weir_types::bounds::{BLOCK_BYTES, JOURNAL_DESTAGE_BYTES_MAX};

use crate::action::{FileId, Span};

/// Largest number of blocks that one write destages to a slow file.
const RUN_BLOCKS_MAX: u32 = (JOURNAL_DESTAGE_BYTES_MAX / BLOCK_BYTES) as u32;

/// The location of a piece's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// The content lies in the log, from this block on.
    At(u32),
    /// The content is zero and its space stays allocated.
    Zero,
    /// The content is zero and its space is given back.
    Release,
}

/// The destage state of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The piece is only in the journal.
    Dirty,
    /// The piece is being written to the slow file.
    Destaging,
    /// The piece was written; a sync of the file is still to come or has completed.
    Destaged,
}

/// Adjacent blocks that have their newest version in one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub blocks: u32,
    pub data: Data,
    pub state: State,
    pub sequence: u64,
}

impl Piece {
    /// Returns the piece without its first blocks.
    fn without(self, blocks: u32) -> Piece {
        let data = match self.data {
            Data::At(block) => Data::At(block + blocks),
            data => data,
        };
        Piece { blocks: self.blocks - blocks, data, ..self }
    }
}

/// Blocks that one operation destages to a slow file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub span: Span,
    /// Content of the first piece. If it is data, all pieces of the run are data.
    pub data: Data,
    /// For data: the pieces in the log, as first block and number of blocks.
    pub sources: Vec<(u32, u32)>,
}

/// The newest pieces; no two overlap. There are at most twice as many pieces as entries in the log, because
/// each entry has two ends.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Pieces by file, then block.
    pieces: BTreeMap<u64, Piece>,
}

/// Keys of different files are far apart: no piece reaches into the next file.
fn key(file: FileId, block: u32) -> u64 {
    u64::from(file.0) << 32 | u64::from(block)
}

fn block_of(key: u64) -> u32 {
    key as u32
}

impl Index {
    /// Replaces a span by the blocks of a newer record.
    pub fn insert(&mut self, span: Span, data: Data, sequence: u64) {
        let piece = Piece { blocks: span.blocks, data, state: State::Dirty, sequence };
        let (start, end) = (key(span.file, span.block), key(span.file, span.end()));
        if let Some((first, last)) = self.pieces.range_mut(..end).next_back() {
            // Most rewrites cover exactly the same range as the write before.
            if *first == start && last.blocks == span.blocks {
                *last = piece;
                return;
            }
            if first + u64::from(last.blocks) > start {
                self.cut(span);
            }
        }
        self.pieces.insert(start, piece);
    }

    /// Removes blocks.
    fn cut(&mut self, span: Span) {
        let (start, end) = (key(span.file, span.block), key(span.file, span.end()));
        if let Some((first, piece)) = self.pieces.range_mut(..start).next_back() {
            let (first, whole) = (*first, *piece);
            let piece_end = first + u64::from(whole.blocks);
            if piece_end > start {
                piece.blocks = (start - first) as u32;
            }
            if piece_end > end {
                self.pieces.insert(end, whole.without((end - first) as u32));
                return;
            }
        }
        while let Some((&first, &piece)) = self.pieces.range(start..end).next() {
            self.pieces.remove(&first);
            if first + u64::from(piece.blocks) > end {
                self.pieces.insert(end, piece.without((end - first) as u32));
            }
        }
    }

    /// Returns the pieces that overlap a span, in order, each with its own first block.
    fn within(&self, span: Span) -> impl Iterator<Item = (u32, Piece)> + '_ {
        let (start, end) = (key(span.file, span.block), key(span.file, span.end()));
        let overlapping = |(first, piece): &(&u64, &Piece)| **first + u64::from(piece.blocks) > start;
        let last = self.pieces.range(..end).next_back().filter(overlapping);
        // Fast path: most spans have one piece or none, and searching dominates the cost.
        let is_alone = last.is_none_or(|(first, _)| *first <= start);
        let before = if is_alone { last } else { self.pieces.range(..start).next_back().filter(overlapping) };
        let others = (!is_alone).then(|| self.pieces.range(start..end)).into_iter().flatten();
        before.into_iter().chain(others).map(|(first, piece)| (block_of(*first), *piece))
    }

    /// Returns true if any record that recovery could read has blocks of a span. Each block with a record has
    /// a newest piece. The piece stays until its record is dropped, and no newer record is dropped before.
    pub fn covers(&self, span: Span) -> bool {
        self.within(span).next().is_some()
    }

    /// Returns the first block of a span that has a record.
    pub fn first_in(&self, span: Span) -> Option<u32> {
        self.within(span).next().map(|(first, _)| first.max(span.block))
    }

    /// Reports the content of a span in order: a number of blocks, and the piece that has exactly these
    /// blocks, if any.
    pub fn read(&self, span: Span, mut tell: impl FnMut(u32, Option<Piece>)) {
        let mut at = span.block;
        for (first, piece) in self.within(span) {
            if first > at {
                tell(first - at, None);
            }
            let start = first.max(at);
            let end = (first + piece.blocks).min(span.end());
            let part = piece.without(start - first);
            tell(end - start, Some(Piece { blocks: end - start, ..part }));
            at = end;
        }
        if at < span.end() {
            tell(span.end() - at, None);
        }
    }

    /// Removes the pieces of one record in a span.
    pub fn remove(&mut self, span: Span, sequence: u64) {
        let first = key(span.file, span.block);
        if let Entry::Occupied(piece) = self.pieces.entry(first)
            && piece.get().blocks == span.blocks
        {
            if piece.get().sequence == sequence {
                piece.remove();
            }
            return;
        }
        // A piece of this record lies wholly within the record's span.
        let mut from = first;
        let end = key(span.file, span.end());
        while from < end {
            let Some((&key, piece)) = self.pieces.range(from..end).next() else { return };
            from = key + u64::from(piece.blocks);
            if piece.sequence == sequence {
                self.pieces.remove(&key);
            }
        }
    }

    /// Removes all pieces of a file.
    pub fn forget(&mut self, file: FileId) {
        while let Some((&key, _)) = self.pieces.range(key(file, 0)..=key(file, u32::MAX)).next() {
            self.pieces.remove(&key);
        }
    }

    /// Returns the pieces of a file, with their first blocks.
    pub fn pieces_of(&self, file: FileId) -> impl Iterator<Item = (u32, Piece)> + '_ {
        let pieces = self.pieces.range(key(file, 0)..=key(file, u32::MAX));
        pieces.map(|(key, piece)| (block_of(*key), *piece))
    }

    /// Returns the first run of a span that exists only in the journal. Its first piece is from a record up
    /// to `through`. The run extends as far as one write can, over newer and older pieces.
    pub fn run(&self, span: Span, through: u64) -> Option<Run> {
        let is_wanted = |piece: &Piece| piece.state == State::Dirty && piece.sequence <= through;
        let start = key(span.file, span.block);
        let mut pieces = self.pieces.range(start..);
        let (block, first) = match pieces.next() {
            // Fast path: most ranges are still as they were written.
            Some((key, piece)) if *key == start && is_wanted(piece) => (span.block, *piece),
            _ => {
                let (block, first) = self.within(span).find(|(_, piece)| is_wanted(piece))?;
                pieces = self.pieces.range(key(span.file, block + first.blocks)..);
                (block, first)
            }
        };
        let mut run = Run {
            span: Span { file: span.file, block, blocks: first.blocks },
            data: first.data,
            sources: Vec::new(),
        };
        let Data::At(at) = first.data else { return Some(run) };
        run.sources.push((at, first.blocks));
        for (&key, piece) in pieces {
            let Data::At(at) = piece.data else { break };
            let is_next = key == self::key(span.file, run.span.end()) && piece.state == State::Dirty;
            if !is_next || run.span.blocks + piece.blocks > RUN_BLOCKS_MAX {
                break;
            }
            run.span.blocks += piece.blocks;
            run.sources.push((at, piece.blocks));
        }
        Some(run)
    }

    /// Moves all pieces of a span that are in one state to another state.
    pub fn advance(&mut self, span: Span, from: State, to: State) {
        let (start, end) = (key(span.file, span.block), key(span.file, span.end()));
        for (_, piece) in self.pieces.range_mut(start..end).filter(|(_, piece)| piece.state == from) {
            piece.state = to;
        }
    }

    /// Marks destaged pieces of a file as dirty again, if their record is newer than `sequence`.
    pub fn doubt(&mut self, file: FileId, sequence: u64) {
        let pieces = self.pieces.range_mut(key(file, 0)..=key(file, u32::MAX));
        let is_meant = |piece: &Piece| piece.state == State::Destaged && piece.sequence > sequence;
        for (_, piece) in pieces.filter(|(_, piece)| is_meant(piece)) {
            piece.state = State::Dirty;
        }
    }

    /// Number of pieces.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCKS: u32 = 40;
    const FILE: FileId = FileId(3);

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(Span, u8),
        Advance(Span),
        Doubt(u64),
        Drop,
        Forget,
    }

    fn span() -> impl Strategy<Value = Span> {
        (0..BLOCKS, 1..12u32).prop_map(|(block, blocks)| Span {
            file: FILE,
            block,
            blocks: blocks.min(BLOCKS - block),
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (span(), 0..3u8).prop_map(|(span, data)| Step::Insert(span, data)),
            2 => span().prop_map(Step::Advance),
            1 => (0..20u64).prop_map(Step::Doubt),
            2 => Just(Step::Drop),
            1 => Just(Step::Forget),
        ]
    }

    /// One block in the oracle.
    type Cell = Option<(Data, u64, State)>;

    const ALL: Span = Span { file: FILE, block: 0, blocks: BLOCKS };

    fn cells(index: &Index, span: Span) -> Vec<Cell> {
        let mut cells = Vec::new();
        index.read(span, |blocks, piece| {
            for n in 0..blocks {
                cells.push(piece.map(|piece| {
                    let part = piece.without(n);
                    (part.data, part.sequence, part.state)
                }));
            }
        });
        cells
    }

    proptest! {
        /// The oracle is a list of blocks.
        #[test]
        fn index_matches_a_list_of_blocks(steps in proptest::collection::vec(step(), 1..80)) {
            let mut index = Index::default();
            let mut oracle: Vec<Cell> = vec![None; BLOCKS as usize];
            let mut entries: Vec<(u64, Span)> = Vec::new();
            // Neighbouring files must not change.
            index.insert(Span { file: FileId(2), block: 0, blocks: 1 << 18 }, Data::Zero, 1);
            index.insert(Span { file: FileId(4), block: 0, blocks: 1 << 18 }, Data::Zero, 1);
            for (sequence, step) in (1..).zip(steps) {
                match step {
                    Step::Insert(span, data) => {
                        let at = sequence as u32 * 100;
                        let data = [Data::At(at), Data::Zero, Data::Release][usize::from(data)];
                        index.insert(span, data, sequence);
                        for n in 0..span.blocks {
                            let data = if data == Data::At(at) { Data::At(at + n) } else { data };
                            oracle[(span.block + n) as usize] = Some((data, sequence, State::Dirty));
                        }
                        entries.push((sequence, span));
                    }
                    Step::Advance(span) => {
                        // Advances whole pieces only, as destaging does.
                        let Some(run) = index.run(span, u64::MAX) else { continue };
                        index.advance(run.span, State::Dirty, State::Destaged);
                        for block in run.span.block..run.span.end() {
                            let cell = oracle[block as usize].as_mut().unwrap();
                            prop_assert_eq!(cell.2, State::Dirty);
                            cell.2 = State::Destaged;
                        }
                    }
                    Step::Doubt(sequence) => {
                        index.doubt(FILE, sequence);
                        let is_meant = |(_, of, _): &&mut (Data, u64, State)| *of > sequence;
                        oracle.iter_mut().flatten().filter(is_meant).for_each(|cell| cell.2 = State::Dirty);
                    }
                    Step::Drop if !entries.is_empty() => {
                        let (sequence, span) = entries.remove(0);
                        index.remove(span, sequence);
                        let is_of = |cell: &Cell| cell.is_some_and(|(_, of, _)| of == sequence);
                        oracle.iter_mut().filter(|cell| is_of(cell)).for_each(|cell| *cell = None);
                    }
                    Step::Drop => {}
                    Step::Forget => {
                        index.forget(FILE);
                        oracle.fill(None);
                    }
                }
                prop_assert_eq!(&cells(&index, ALL), &oracle);
                prop_assert!(index.len() <= 2 + 2 * entries.len());
                for block in 0..BLOCKS {
                    let is_covered = index.covers(Span { file: FILE, block, blocks: 1 });
                    prop_assert_eq!(is_covered, oracle[block as usize].is_some());
                    let blocks = 1 + (sequence as u32 * 7 + block) % (BLOCKS - block);
                    let span = Span { file: FILE, block, blocks };
                    let first = (block..block + blocks).find(|block| oracle[*block as usize].is_some());
                    prop_assert_eq!(index.first_in(span), first);
                    let some = cells(&index, span);
                    prop_assert_eq!(&some, &oracle[block as usize..(block + blocks) as usize]);
                }
            }
        }

        #[test]
        fn run_is_the_longest_single_write(
            spans in proptest::collection::vec((span(), 0..3u8), 1..20),
            from in 0..BLOCKS,
            through in 1..20u64,
        ) {
            let mut index = Index::default();
            for (sequence, (span, data)) in (1..).zip(&spans) {
                let data = [Data::At(sequence as u32 * 100), Data::At(9000), Data::Zero][usize::from(*data)];
                index.insert(*span, data, sequence);
            }
            let span = Span { file: FILE, block: from, blocks: BLOCKS - from };
            let cells = cells(&index, ALL);
            let is_old = |cell: &Cell| cell.is_some_and(|(_, sequence, _)| sequence <= through);
            let Some(run) = index.run(span, through) else {
                prop_assert!(!cells[from as usize..].iter().any(is_old));
                return Ok(());
            };
            prop_assert!(is_old(&cells[run.span.block.max(from) as usize]));
            prop_assert!(!cells[from as usize..run.span.block.max(from) as usize].iter().any(is_old));
            let listed: Vec<Data> = run.sources.iter()
                .flat_map(|(at, blocks)| (*at..at + blocks).map(Data::At)).collect();
            let found: Vec<Data> = cells[run.span.block as usize..run.span.end() as usize].iter()
                .map(|cell| cell.unwrap().0).collect();
            if run.data == Data::Zero {
                prop_assert!(found.iter().all(|data| *data == Data::Zero));
            } else {
                prop_assert_eq!(found, listed);
                let next = cells.get(run.span.end() as usize).copied().flatten();
                prop_assert!(!matches!(next, Some((Data::At(_), ..))));
            }
        }
    }
}
