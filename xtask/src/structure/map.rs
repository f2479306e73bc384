//! Map of the crates for ARCHITECTURE.md: a line for each crate and for each module at its top, with the first
//! sentence of its file. The check of structure compares it.

use super::parse::{CrateSource, SourceFile};

/// Crates from the bottom up. A crate that is not named here comes last.
const ORDER: [&str; 22] = [
    "weir-testkit",
    "weir-types",
    "weir-qos",
    "weir-volume",
    "weir-plan",
    "weir-journal",
    "weir-nbd",
    "weir-fuse",
    "weir-replay",
    "weir-reactor",
    "weir-host",
    "weir-attach",
    "weir-store",
    "weir-engine-interface",
    "weir-engine",
    "weir-control",
    "weir-api-types",
    "weir-api",
    "weir-cli",
    "weir",
    "weir-generated-client",
    "weir-sim",
];

/// The map.
pub fn map(crates: &[CrateSource]) -> String {
    let place =
        |source: &&CrateSource| ORDER.iter().position(|name| *name == source.name).unwrap_or(ORDER.len());
    let mut ordered: Vec<&CrateSource> = crates.iter().collect();
    ordered.sort_by_key(place);
    ordered.into_iter().map(of_crate).collect()
}

fn of_crate(source: &CrateSource) -> String {
    let root = source.files.iter().find(|file| file.module.is_empty());
    let sentence = root.map_or("", |file| file.sentence.as_str());
    let mut text = format!("{}: {sentence}\n", source.name);
    for file in source.files.iter().filter(|file| file.module.len() == 1) {
        let is_folder =
            source.files.iter().any(|other| other.module.len() > 1 && other.module[0] == file.module[0]);
        text.push_str(&line(file, is_folder));
    }
    text
}

fn line(file: &SourceFile, is_folder: bool) -> String {
    let slash = if is_folder { "/" } else { "" };
    format!("  {}{slash}: {}\n", file.module[0], file.sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_stand_from_the_bottom_up_with_their_modules() {
        let file = |path: &[&str], sentence: &str| SourceFile {
            module: path.iter().map(|part| (*part).to_owned()).collect(),
            sentence: sentence.to_owned(),
            ..SourceFile::default()
        };
        let crates = [
            CrateSource { name: "weir-cli".to_owned(), files: vec![file(&[], "The client")] },
            CrateSource {
                name: "weir-qos".to_owned(),
                files: vec![
                    file(&["tree"], "The tree"),
                    file(&["tree", "way"], "A way"),
                    file(&[], "Limits"),
                ],
            },
        ];
        assert_eq!(map(&crates), "weir-qos: Limits\n  tree/: The tree\nweir-cli: The client\n");
    }
}
