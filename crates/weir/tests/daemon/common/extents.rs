//! Extent files, compared byte by byte.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const EXTENT_BYTES: u64 = 1 << 30;
/// Bytes of each file that are compared at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Asserts that the files of all replicas of an extent have the same bytes. Returns the number of replicas.
pub fn assert_alike(paths: &[PathBuf]) -> usize {
    let (first_path, other_paths) = paths.split_first().expect("an extent has a replica");
    let first_file = File::open(first_path).unwrap();
    let others: Vec<(&PathBuf, File)> =
        other_paths.iter().map(|path| (path, File::open(path).unwrap())).collect();
    let (mut first, mut other) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    for offset in (0..EXTENT_BYTES).step_by(PIECE_BYTES) {
        first_file.read_exact_at(&mut first, offset).unwrap();
        for (path, file) in &others {
            file.read_exact_at(&mut other, offset).unwrap();
            assert!(first == other, "near {offset}: {} and {}", first_path.display(), path.display());
        }
    }
    paths.len()
}
