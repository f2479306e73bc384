//! Tests of command lines about templates.

use super::super::arguments::TemplateCommand;
use super::*;
use weir_api_types::TemplateRead;

/// Arguments of the creation of a template: classes of the replicas, and the class to read from.
fn creation(line: &str) -> (Vec<IoPriority>, Option<TemplateRead>) {
    let command = read(line).unwrap();
    let Command::Template { command: TemplateCommand::Create { replicas, read_from, .. } } = command else {
        panic!("{line}: {command:?}");
    };
    (replicas.0, read_from)
}

#[test]
fn replica_classes_are_parsed_and_wrong_ones_are_named() {
    use IoPriority::{High, Low, Medium};
    for (line, expected) in [
        ("template create t --replicas high,high,low", (vec![High, High, Low], None)),
        ("template create t -replicas=Med --read_from MEDIUM", (vec![Medium], Some(TemplateRead::Medium))),
        (
            "TEMPLATE Create t --REPLICAS low,high -read-from fastest",
            (vec![Low, High], Some(TemplateRead::Fastest)),
        ),
    ] {
        assert_eq!(creation(line), expected, "{line}");
    }
    for (line, words) in [
        ("template create t", "--replicas"),
        (
            "template create t --replicas fast",
            "'fast' is no class; high, medium (or med) and low are accepted",
        ),
        ("template create t --replicas high,", "'' is no class"),
        ("template create t --replicas high,high,high,low", "are 4 replicas; 1 to 3 classes are accepted"),
        ("template create t --replicas high --read-from slowest", "'slowest' is no class"),
        ("template modify t", "--read-from"),
    ] {
        let error = read(line).unwrap_err();
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn replicas_option_of_a_volume_is_known_by_both_names() {
    for line in ["volume create v --size 1 --replicas 2", "volume modify v -REPL 2"] {
        assert!(read(line).is_ok(), "{line}");
    }
}

#[test]
fn template_conflicts_with_options_that_it_sets() {
    assert!(read("volume create v --size 1 --template hybrid --qos-policy-group p").is_ok());
    for option in ["--repl 2", "--io-priority high", "--class-policy prefer", "--drive d1"] {
        let error = read(&format!("volume create v --size 1 --template hybrid {option}")).unwrap_err();
        let name = match option.split(' ').next().unwrap() {
            "--repl" => "--replicas",
            "--io-priority" => "--class",
            name => name,
        };
        assert!(error.contains("cannot be used with") && error.contains(name), "{error}");
    }
}
