//! Commands as the how-to guides print them.

use std::path::{Path, PathBuf};

/// Names of all pages, without suffix.
pub fn pages() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// Commands of the blocks `sh` of a page, in their order. A command that continues on the next line is one
/// command.
pub fn commands(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder().join(page).with_extension("md")).unwrap();
    let mut commands: Vec<String> = Vec::new();
    let mut is_inside = false;
    let mut is_continued = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            is_inside = line == "```sh";
        } else if is_inside {
            let part = line.trim_end_matches('\\').trim_end();
            match commands.last_mut().filter(|_| is_continued) {
                Some(command) => *command = format!("{command} {part}"),
                None => commands.push(part.to_owned()),
            }
            is_continued = line.ends_with('\\');
        }
    }
    commands
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to")
}
