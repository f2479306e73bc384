//! The files of extents, byte by byte.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const EXTENT_BYTES: u64 = 1 << 30;
/// What is looked at of each at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Asserts that the files of all copies of an extent have the same bytes; answers how many there are.
pub fn assert_alike(paths: &[PathBuf]) -> usize {
    let files: Vec<File> = paths.iter().map(|path| File::open(path).unwrap()).collect();
    let (mut first, mut other) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    for offset in (0..EXTENT_BYTES).step_by(PIECE_BYTES) {
        files[0].read_exact_at(&mut first, offset).unwrap();
        for (file, path) in files.iter().zip(paths).skip(1) {
            file.read_exact_at(&mut other, offset).unwrap();
            assert!(first == other, "near {offset}: {} and {}", paths[0].display(), path.display());
        }
    }
    files.len()
}
