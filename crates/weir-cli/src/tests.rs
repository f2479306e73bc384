//! Tests of command lines: the lines in other systems' documents, and other spellings.

mod templates;

use std::ffi::OsString;

use weir_types::{Emulation, EmulationKind, Throughput};

use super::arguments::{
    AdaptiveArguments, AdaptivePolicyGroupCommand, Command, DriveAddArguments, DriveCommand,
    PolicyGroupCommand, PoolCommand, QosCommand, TenantCommand, TermsArguments, VolumeCommand,
};
use super::parse;
use weir_api_types::{
    BurstTerms, InitialCredit, IoPriority, OperationSize, PeakMode, PolicyGroup, PolicyLimits, PolicyTerms,
    Rates, Space,
};

/// Parses a command line as typed after the program's name.
fn read(line: &str) -> Result<Command, String> {
    let words = std::iter::once("weir").chain(line.split_whitespace()).map(OsString::from);
    parse(words).map(|(arguments, _)| arguments.command).map_err(|error| error.to_string())
}

fn rates(text: &str) -> Option<Throughput> {
    Some(Throughput::parse(text).unwrap())
}

/// Arguments of the creation of a policy group: name, tenant, ceilings on all requests, and sharing.
fn policy_creation(line: &str) -> (String, Option<String>, Option<Throughput>, bool) {
    let command = read(line).unwrap();
    let Command::Qos {
        command:
            QosCommand::PolicyGroup { command: PolicyGroupCommand::Create { name, tenant, terms, is_shared, .. } },
    } = command
    else {
        panic!("{line}: {command:?}");
    };
    (name.get().to_owned(), tenant.tenant, terms.max_throughput, is_shared)
}

/// Arguments of the modification of a volume: name, tenant and policy group.
fn volume_modification(line: &str) -> (String, Option<String>, Option<String>) {
    let command = read(line).unwrap();
    let Command::Volume { command: VolumeCommand::Modify(arguments) } = command else {
        panic!("{line}: {command:?}");
    };
    (arguments.name.get().to_owned(), arguments.tenant.tenant, arguments.changes.policy_group)
}

#[test]
fn policy_group_create_lines_of_ontap_are_accepted() {
    let svm01 = || Some("svm01".to_owned());
    for (line, expected) in [
        (
            "qos policy-group create policy1 -vserver svm01 -max-throughput 10000IOPS,300MB/s -is-shared false",
            ("policy1".to_owned(), svm01(), rates("10000IOPS,300MB/s"), false),
        ),
        (
            "qos policy-group create policy1-shared -vserver svm01 -max-throughput 3000IOPS,200MB/s -is-shared true",
            ("policy1-shared".to_owned(), svm01(), rates("3000IOPS,200MB/s"), true),
        ),
        ("qos policy-group create p", ("p".to_owned(), None, None, true)),
        ("QOS Policy_Group CREATE -Policy-Group p --IS_SHARED=False", ("p".to_owned(), None, None, false)),
    ] {
        assert_eq!(policy_creation(line), expected, "{line}");
    }
}

#[test]
fn policy_group_modify_lines_of_ontap_are_accepted() {
    for limit in ["1000IOPS,200MB/s", "2000IOPS,200MB/s"] {
        let line = format!("qos policy-group modify policy1 -max-throughput {limit}");
        let command = read(&line).unwrap();
        let Command::Qos {
            command: QosCommand::PolicyGroup { command: PolicyGroupCommand::Modify { name, terms, .. } },
        } = command
        else {
            panic!("{line}: {command:?}");
        };
        assert_eq!((name.get(), terms.max_throughput), ("policy1", rates(limit)));
    }
}

#[test]
fn policy_group_show_lines_of_ontap_are_accepted() {
    for (line, expected) in [
        ("qos policy-group show", None),
        ("qos policy-group show -policy-group policy1", Some("policy1")),
        ("qos policy-group show policy1 -o yaml", Some("policy1")),
    ] {
        let command = read(line).unwrap();
        let Command::Qos {
            command: QosCommand::PolicyGroup { command: PolicyGroupCommand::Show { name, .. } },
        } = command
        else {
            panic!("{line}: {command:?}");
        };
        assert_eq!(name.get(), expected, "{line}");
    }
}

#[test]
fn volume_binding_lines_of_ontap_are_accepted() {
    for (line, volume, tenant, policy) in [
        ("volume modify -volume vol9 -qos-policy-group policy1", "vol9", None, "policy1"),
        ("volume modify -volume vol9 -qos-policy-group none", "vol9", None, "none"),
        (
            "volume modify -volume vol1 -vserver svm01 -qos-policy-group policy1",
            "vol1",
            Some("svm01"),
            "policy1",
        ),
        (
            "volume modify -volume vol2 -vserver svm01 -qos-policy-group policy1",
            "vol2",
            Some("svm01"),
            "policy1",
        ),
        (
            "volume modify -volume vol1 -vserver svm01 -qos-policy-group policy1-shared",
            "vol1",
            Some("svm01"),
            "policy1-shared",
        ),
        (
            "volume modify -volume vol2 -vserver svm01 -qos-policy-group policy1-shared",
            "vol2",
            Some("svm01"),
            "policy1-shared",
        ),
        (
            "vol modify -vserver svm01 -volume vol2 -qos-policy-group policy1",
            "vol2",
            Some("svm01"),
            "policy1",
        ),
        ("VOLUME Update vol2 --Tenant=svm01 --qos_policy_group policy1", "vol2", Some("svm01"), "policy1"),
    ] {
        let expected = (volume.to_owned(), tenant.map(str::to_owned), Some(policy.to_owned()));
        assert_eq!(volume_modification(line), expected, "{line}");
    }
}

#[test]
fn statistics_lines_of_ontap_are_accepted() {
    assert!(matches!(read("qos statistics volume performance show"), Ok(Command::Qos { .. })));
    assert!(read("qos statistics vol performance show -interval 2 -iterations 3 -vserver svm01").is_ok());
    for bad in ["-interval 0", "-interval x", "-iterations -1"] {
        assert!(read(&format!("qos statistics volume performance show {bad}")).is_err(), "{bad}");
    }
}

#[test]
fn volume_create_lines_of_portworx_are_accepted() {
    for (line, name, priority) in [
        ("volume create --io_priority high test-high --size 8", "test-high", IoPriority::High),
        ("volume create --io_priority med test-med --size 8", "test-med", IoPriority::Medium),
        ("volume create --io_priority low test-low --size 8", "test-low", IoPriority::Low),
        ("vol create --IO-PRIORITY MEDIUM test-med --size 8GiB", "test-med", IoPriority::Medium),
    ] {
        let command = read(line).unwrap();
        let Command::Volume { command: VolumeCommand::Create(found) } = command else {
            panic!("{line}: {command:?}");
        };
        let created = (found.name.get(), found.size.0, found.class);
        assert_eq!(created, (name, 8 << 30, Some(priority)), "{line}");
    }
}

#[test]
fn replica_count_is_accepted_in_every_spelling() {
    for (line, expected) in [
        ("volume create v --size 8", None),
        ("volume create v --size 8 --repl=2", Some(2)),
        ("volume create --repl 3 v --size 8", Some(3)),
        ("volume create -repl 2 v --size 8", Some(2)),
        ("vol create -REPL=1 v -size=8", Some(1)),
        ("volume create --replicas 2 v --size 8", Some(2)),
    ] {
        let Ok(Command::Volume { command: VolumeCommand::Create(found) }) = read(line) else {
            panic!("{line}");
        };
        assert_eq!(found.replicas, expected, "{line}");
    }
    for bad in ["0", "4", "-1", "two", ""] {
        let error = read(&format!("volume create v --size 8 --repl={bad}")).unwrap_err();
        assert!(error.contains("--replicas"), "{error}");
    }
}

#[test]
fn drives_are_added_with_a_name_and_parameters() {
    let emulation =
        |iops, bytes_per_second, latency_ns| Some(Emulation::even(iops, bytes_per_second, latency_ns));
    for (line, directory, name, parameters, target) in [
        ("drive add /srv/Drive_1", "/srv/Drive_1", None, None, None),
        ("drive add drive1 -name D1 --queue-target 8", "drive1", Some("D1"), None, Some(8)),
        ("DRIVE Add . --emulate iops=2000 -queue_target AUTO", ".", None, emulation(2000, None, 0), Some(0)),
        (
            "drive add /srv/slow --name slow --emulate iops=21000,bandwidth=250MB/s,latency=200us",
            "/srv/slow",
            Some("slow"),
            emulation(21_000, Some(250_000_000), 200_000),
            None,
        ),
        ("drive add d --emulate hdd-7200", "d", None, Some(EmulationKind::Hdd7200.emulation()), None),
        (
            "drive add d --emulate NVMe,seek=1ms,flush=none,parallel=4,latency=0",
            "d",
            None,
            Some(Emulation {
                seek_ns: 1_000_000,
                parallel: Some(4),
                ..Emulation::even(400_000, Some(3_000_000_000), 0)
            }),
            None,
        ),
    ] {
        let command = read(line).unwrap();
        let Command::Drive {
            command:
                DriveCommand::Add(DriveAddArguments {
                    directory: found, name: called, emulate, queue_target, ..
                }),
        } = command
        else {
            panic!("{line}: {command:?}");
        };
        let found = (found.to_str().unwrap(), called.as_deref(), emulate, queue_target);
        assert_eq!(found, (directory, name, parameters, target), "{line}");
    }
}

#[test]
fn drives_are_measured_and_classed() {
    for (line, expected) in [
        ("drive add /srv/d1", (None, false, false)),
        ("drive add /srv/d1 --class HIGH", (Some(IoPriority::High), false, false)),
        ("drive add /srv/d1 -class med --no-measurement", (Some(IoPriority::Medium), true, false)),
        ("drive add /srv/d1 -no_wait", (None, false, true)),
    ] {
        let Ok(Command::Drive { command: DriveCommand::Add(arguments) }) = read(line) else {
            panic!("{line}");
        };
        let DriveAddArguments { class, no_measurement, no_wait, .. } = arguments;
        assert_eq!((class, no_measurement, no_wait), expected, "{line}");
    }
    for (line, is_understood) in [
        ("drive accept d1", true),
        ("drive accept d1 --yes", true),
        ("drive accept", false),
        ("drive measure d1", true),
        ("drive measure d1 --wait", true),
        ("drive measure d1 --no-wait", true),
        ("drive measure d1 --wait --no-wait", false),
        ("drive measure", false),
        ("drive modify d1 --class auto", true),
        ("drive modify d1 --class med", true),
        ("drive modify d1", false),
        ("drive modify d1 --zone a", true),
        ("drive modify d1 -ZONE none -rack=r1 --class low", true),
        ("drive add /srv/d1 --zone a --rack r1", true),
    ] {
        assert_eq!(read(line).is_ok(), is_understood, "{line}");
    }
}

#[test]
fn pools_are_shown_and_changed() {
    for line in ["pool list", "pool show -o json", "POOL inspect D1 -o yaml"] {
        assert!(matches!(read(line), Ok(Command::Pool { .. })), "{line}");
    }
    let command = read("pool modify D1 -over_commit 150% --reserve 0% --queue-target 32 --force").unwrap();
    let Command::Pool { command: PoolCommand::Modify { name, changes, force } } = command else {
        panic!("{command:?}");
    };
    let changes = (changes.over_commit, changes.reserve, changes.queue_target);
    assert_eq!((name.as_str(), changes, force), ("D1", (Some(150), Some(0), Some(32)), true));
}

#[test]
fn drives_are_shown_removed_and_chosen() {
    for (line, is_understood) in [
        ("drive list", true),
        ("drive list -o json", true),
        ("drive show slow -o yaml", true),
        ("drive inspect slow", true),
        ("drive remove slow", true),
        ("drive remove slow --wait", true),
        ("drive remove slow --cancel", true),
        ("drive remove slow --wait --cancel", false),
        ("drive delete slow", true),
        ("drive show", true),
        ("drive remove", false),
        ("drive add", false),
    ] {
        assert_eq!(read(line).is_ok(), is_understood, "{line}");
    }
    let command = read("volume create vol1 --size 8 -drive slow").unwrap();
    let Command::Volume { command: VolumeCommand::Create(found) } = command else {
        panic!("{command:?}");
    };
    assert_eq!(found.drive.as_deref(), Some("slow"));
}

#[test]
fn names_and_values_keep_case_and_dashes() {
    let command = read("-SERVER unix:/Tmp/A_b volume create Vol --SIZE 1TB --tenant A_B").unwrap();
    let Command::Volume { command: VolumeCommand::Create(found) } = command else {
        panic!("{command:?}");
    };
    let created = (found.name.get(), found.tenant.tenant.as_deref(), found.size.0);
    assert_eq!(created, ("Vol", Some("A_B"), 1_000_000_000_000));
    // A name that is also the name of a command, and a name after the end of options.
    assert_eq!(volume_modification("volume modify modify --io-priority low").0, "modify");
    assert_eq!(volume_modification("volume modify --io-priority low -- -odd_Name").0, "-odd_Name");
}

#[test]
fn invalid_command_line_names_the_fault() {
    for (line, words) in [
        ("volume create vol1", "--size"),
        ("volume create vol1 --size -1", "'-1' is not a size"),
        ("volume create vol1 --size 8X", "'8X' is not a size"),
        ("volume create vol1 --size 99999999999TiB", "is not a size"),
        ("volume create vol1 --volume vol2 --size 8", "cannot be used with"),
        ("volume create --size 8", "required"),
        ("volume create vol1 --size 8 --io_priority best", "low, medium, high"),
        ("scrub start", "required"),
        ("scrub start vol1 --all", "cannot be used with"),
        ("volume modify vol1", "required"),
        ("volume modify vol1 -qos-adaptive-policy-group", "a value is required"),
        (
            "volume create vol1 --size 8 -qos-policy-group p -qos-adaptive-policy-group q",
            "cannot be used with",
        ),
        ("qos policy-group create p -min-throughput 5", "'5' is not a rate with its unit"),
        ("qos policy-group create p --burst-credit half", "half"),
        ("qos policy-group create p --weight -1", "-1"),
        ("qos policy-group create p --iops-size 4096", "'4096' is not a request size such as 4KiB"),
        ("qos policy-group create p --iops-size 0", "'0' is not a request size"),
        ("qos policy-group create p --charge discard", "'discard' is not a list of charges"),
        ("qos policy-group create p --charge flush=1,flush=2", "names 'flush' twice"),
        ("qos adaptive-policy-group create p -expected-iops 1/MB", "'1/MB' is not a rate per size"),
        ("qos adaptive-policy-group create p -block-size 5", "'5' is not a block size"),
        (
            "qos adaptive-policy-group create p -absolute-min-iops many",
            "'many' is not a number of operations",
        ),
        ("qos adaptive-policy-group create p --peak-mode loans", "loans"),
        ("tenant modify svm01", "required"),
        ("qos policy-group create p -max-throughput 1000", "'1000' is not a rate with its unit"),
        ("qos policy-group create p -max-throughput -5IOPS", "'-5IOPS' is not a rate"),
        ("qos policy-group create p -max-throughput 99999999999999999999IOPS", "is not a rate"),
        ("qos policy-group create p -max-throughput 2000000000IOPS", "a rate from 1IOPS to 1000000000IOPS"),
        ("qos policy-group create p -max-throughput 1IOPS,2IOPS", "pair of different rates"),
        ("qos policy-group create p -is-shared perhaps", "perhaps"),
        ("drive add /x --emulate iops=0", "'iops=0' is not from 1 to 1000000000"),
        ("drive add /x --emulate iops=-1", "'-1' is not a whole number of operations per second"),
        ("drive add /x --emulate latency=1ms", "(iops is required)"),
        ("drive add /x --emulate iops=5,latency=1", "'1' is not a time with its unit"),
        ("drive add /x --emulate tape", "'tape' is not a list such as iops=21000"),
        ("drive add /x --emulate tape", "or a kind of drive (ebs-io1, ebs-gp2,"),
        ("drive add /x --emulate nvme,parallel=0", "'parallel=0' is not from 1 to 1024"),
        ("drive add /x --class fast", "low, medium, high"),
        ("drive modify d1 --class fast", "low, medium, high, auto"),
        ("pool modify d1", "required"),
        ("pool modify d1 --force", "required"),
        ("pool modify d1 --over-commit 150", "'150' is not a whole number of percent such as 150%"),
        ("pool modify d1 --over-commit 1.5%", "'1.5%' is not a whole number of percent"),
        ("pool modify d1 --reserve -5%", "'-5%' is not a whole number of percent"),
        ("pool modify d1 --queue-target 0", "'0' is not 'auto' or a number of operations"),
        ("drive add /x --queue-target many", "'many' is not 'auto' or a number of operations"),
        ("volumes list", "volumes"),
        ("serve --reactors 0", "0 is not in 1..=1024"),
    ] {
        let error = read(line).expect_err(line);
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn every_help_has_an_example() {
    fn check(command: &clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        let help = command.get_after_help().map(|help| help.to_string()).unwrap_or_default();
        assert!(help.contains("Example:\n  weir "), "{path} has no example");
        command.get_subcommands().filter(|sub| sub.get_name() != "help").for_each(|sub| check(sub, &path));
    }
    let command = super::command();
    command.clone().debug_assert();
    check(&command, "");
}

#[test]
fn examples_in_the_help_are_accepted() {
    fn examples(command: &clap::Command, found: &mut Vec<String>) {
        let help = command.get_after_help().map(|help| help.to_string()).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  weir "));
        found.extend(lines.map(|line| line.split(" >").next().unwrap().trim_end_matches('&').to_owned()));
        command.get_subcommands().for_each(|sub| examples(sub, found));
    }
    let mut found = Vec::new();
    examples(&super::command(), &mut found);
    assert!(found.len() > 25, "{found:?}");
    found.iter().for_each(|line| assert!(read(line).is_ok(), "{line}: {:?}", read(line)));
}

/// The subcommands of a command, outermost name first.
fn at<'a>(root: &'a clap::Command, path: &[&str]) -> &'a clap::Command {
    let below = |command: &'a clap::Command, name: &&str| {
        command.find_subcommand(name).unwrap_or_else(|| panic!("{path:?}: no {name}"))
    };
    path.iter().fold(root, below)
}

#[test]
fn every_noun_has_the_same_verbs() {
    let command = super::command();
    let all = ["create", "list", "show", "modify", "delete"];
    let nouns: [(&[&str], &[&str]); 14] = [
        (&["volume"], &all),
        (&["snapshot"], &["create", "list", "show", "delete"]),
        (&["drive"], &all),
        (&["pool"], &["list", "show", "modify"]),
        (&["template"], &all),
        (&["tenant"], &all),
        (&["journal"], &["list", "show"]),
        (&["scrub"], &["create", "list", "show", "delete"]),
        (&["policy-group"], &all),
        (&["adaptive-policy-group"], &all),
        (&["background-policy"], &["list", "show", "modify"]),
        (&["qos", "policy-group"], &all),
        (&["qos", "adaptive-policy-group"], &all),
        (&["qos", "background-policy"], &["list", "show", "modify"]),
    ];
    for (noun, verbs) in nouns {
        let noun_command = at(&command, noun);
        for verb in verbs {
            let verb_command = at(noun_command, &[verb]);
            let alias = match *verb {
                "show" => "inspect",
                "modify" => "update",
                "delete" => "remove",
                _ => continue,
            };
            assert_eq!(at(noun_command, &[alias]).get_name(), verb_command.get_name(), "{noun:?} {alias}");
            let is_shown =
                verb_command.get_visible_aliases().chain([verb_command.get_name()]).any(|name| name == alias);
            assert!(is_shown, "{noun:?} {alias} is in the help");
        }
        let line = noun.join(" ");
        assert!(read(&format!("{line} list -o wide")).is_ok(), "{line}");
        assert!(read(&format!("{line} show")).is_ok(), "{line} show without a name is the list");
    }
}

#[test]
fn other_spellings_are_aliases_that_the_help_shows() {
    let command = super::command();
    fn check(command: &clap::Command, path: &str, seen: &mut Vec<String>) {
        for option in command.get_arguments() {
            let name = option.get_long().unwrap_or_default();
            let alias = match name {
                "tenant" => "vserver",
                "replicas" if path.starts_with(" weir volume") => "repl",
                "class" => "io-priority",
                "policy-group" if !path.contains("policy-group") => "qos-policy-group",
                "adaptive-policy-group" => "qos-adaptive-policy-group",
                _ => {
                    let theirs =
                        ["vserver", "repl", "io-priority", "qos-policy-group", "qos-adaptive-policy-group"];
                    assert!(!theirs.contains(&name), "{path} --{name} is not the primary spelling");
                    continue;
                }
            };
            let aliases = option.get_visible_aliases().unwrap_or_default();
            assert!(aliases.contains(&alias), "{path} --{name} has no alias --{alias}");
            seen.push(alias.to_owned());
        }
        let below = command.get_subcommands();
        below.for_each(|below| check(below, &format!("{path} {}", below.get_name()), seen));
    }
    let mut seen = Vec::new();
    check(&command, " weir", &mut seen);
    assert!(seen.len() > 30, "{seen:?}");
    for line in [
        "volume create v --size 8 --replicas 2 --class high --policy-group gold --tenant svm01",
        "volume create v --size 8 --repl 2 --io_priority high -qos-policy-group gold -vserver svm01",
    ] {
        let Ok(Command::Volume { command: VolumeCommand::Create(found) }) = read(line) else {
            panic!("{line}")
        };
        let tenant = found.tenant.tenant.as_deref();
        let options = (found.replicas, found.class, found.binding.policy_group.as_deref(), tenant);
        assert_eq!(options, (Some(2), Some(IoPriority::High), Some("gold"), Some("svm01")), "{line}");
    }
}

#[test]
fn typing_errors_get_suggestions() {
    for (line, suggestion) in [
        ("volme list", "'volume'"),
        ("polcy-group list", "'policy-group'"),
        ("volume lst", "'list'"),
        ("qos policy-group modfy p", "'modify'"),
        ("volume create v --sise 8", "'--size'"),
        ("volume modify v -qos-polcy-group p", "'--qos-policy-group'"),
        ("volume create v --size 8 --class hihg", "'high'"),
        ("volume list -o jsno", "'json'"),
        ("scrub strat vol1", "'start'"),
    ] {
        let error = read(line).unwrap_err();
        assert!(error.contains("similar") && error.contains(suggestion), "{line}: {error}");
    }
}

#[test]
fn policy_groups_are_reached_by_both_paths() {
    for line in
        ["policy-group create gold --max-throughput 5IOPS", "PolicY_Group CREATE gold -max_throughput 5IOPS"]
    {
        let Ok(Command::PolicyGroup { command: PolicyGroupCommand::Create { name, terms, .. } }) = read(line)
        else {
            panic!("{line}");
        };
        assert_eq!((name.get(), terms.max_throughput), ("gold", rates("5IOPS")), "{line}");
    }
    for line in ["adaptive-policy-group show extreme", "background-policy modify scrub --weight 5"] {
        assert!(read(line).is_ok() && read(&format!("qos {line}")).is_ok(), "{line}");
    }
}

#[test]
fn policy_group_is_shown_in_ontap_layout() {
    let rates = Rates { iops: Some(10_000), bytes_per_second: Some(300_000_000) };
    let group = PolicyGroup {
        id: "63ab2b0a-bc09-11ec-81f5-abba8ceb7752".parse().unwrap(),
        number: 1664,
        tenant: "svm01".to_owned(),
        name: "policy1".to_owned(),
        class: "user-defined".to_owned(),
        terms: limited(PolicyLimits { total: rates, ..PolicyLimits::default() }),
        parent: None,
        is_shared: false,
        workloads: 0,
        version: 0,
        created_at: jiff::Timestamp::UNIX_EPOCH,
    };
    // The text that the document prints.
    let document = "              Policy Group Name: policy1
                        Vserver: svm01
                           Uuid: 63ab2b0a-bc09-11ec-81f5-abba8ceb7752
             Policy Group Class: user-defined
                Policy Group ID: 1664
             Maximum Throughput: 10000IOPS,300MB/s
             Minimum Throughput: 0
            Number of Workloads: 0
              Throughput Policy: 0-10000IOPS,300MB/s
                      Is Shared: false
       Is Policy Auto Generated: -
";
    assert_eq!(super::commands::policy::description(&group), document);
    let read = Rates { iops: Some(500), bytes_per_second: None };
    let reading = limited(PolicyLimits { read, ..PolicyLimits::default() });
    let text = super::commands::policy::description(&PolicyGroup { terms: reading, ..group.clone() });
    assert!(
        text.contains("                   Maximum Read: 500IOPS\n") && text.contains(": 0-INF\n"),
        "{text}"
    );
    assert!(!text.contains("Maximum Write"), "{text}");
    let terms = PolicyTerms {
        burst: Some(BurstTerms {
            rates: PolicyLimits { total: read, ..PolicyLimits::default() },
            seconds: 30,
            initial_credit: InitialCredit::Full,
        }),
        floor: read,
        weight: 7,
        operation_size: OperationSize::Bytes(4096),
        ..reading
    };
    let all = PolicyGroup { terms, parent: Some("top".to_owned()), ..group };
    let text = super::commands::policy::description(&all);
    for line in [
        "             Minimum Throughput: 500IOPS\n",
        "               Burst Throughput: 500IOPS\n",
        "                 Burst Duration: 30s\n",
        "          Burst Credit at Start: full\n",
        "                         Weight: 7\n",
        "                      IOPS Size: 4KiB\n",
        "            Parent Policy Group: top\n",
        "              Throughput Policy: 500IOPS-INF\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

/// Terms with these ceilings and nothing else.
fn limited(limits: PolicyLimits) -> PolicyTerms {
    PolicyTerms { limits, ..PolicyTerms::from(weir_types::Terms::default()) }
}

fn adaptive_creation(line: &str) -> (String, Option<String>, AdaptiveArguments) {
    let command = read(line).unwrap();
    let Command::Qos {
        command:
            QosCommand::AdaptivePolicyGroup {
                command: AdaptivePolicyGroupCommand::Create { name, tenant, terms },
            },
    } = command
    else {
        panic!("{line}: {command:?}");
    };
    (name.get().to_owned(), tenant.tenant, *terms)
}

#[test]
fn adaptive_group_create_lines_of_ontap_are_accepted() {
    let line = "qos adaptive-policy-group create -policy-group adaptive-policy2 -vserver svm01 \
        -expected-IOPS 1000 -block-size 4k -expected-IOPS-allocation allocated-space -peak-IOPS 1500 \
        -peak-IOPS-allocation allocated-space";
    let (name, tenant, terms) = adaptive_creation(line);
    assert_eq!((name.as_str(), tenant.as_deref()), ("adaptive-policy2", Some("svm01")));
    assert_eq!(
        (terms.expected_iops, terms.peak_iops, terms.block_size),
        (Some(1000), Some(1500), Some(4096))
    );
    let spaces = (terms.expected_iops_allocation, terms.peak_iops_allocation);
    assert_eq!(spaces, (Some(Space::AllocatedSpace), Some(Space::AllocatedSpace)));
    let line = "qos adaptive-policy-group create p -expected-iops 1IOPS/GB -peak-iops 2000/TB -block-size ANY \
        -peak-iops-allocation Used-Space -absolute-min-iops 75 --ceiling-iops-max 9000IOPS --peak-mode credits";
    let (_, _, terms) = adaptive_creation(line);
    assert_eq!((terms.expected_iops, terms.peak_iops, terms.block_size), (Some(1000), Some(2000), Some(0)));
    assert_eq!((terms.absolute_min_iops, terms.ceiling_iops_max), (Some(75), Some(9000)));
    assert_eq!(
        (terms.peak_iops_allocation, terms.peak_mode),
        (Some(Space::UsedSpace), Some(PeakMode::Credits))
    );
}

#[test]
fn adaptive_binding_lines_of_ontap_are_accepted() {
    for (line, volume, tenant, fixed, adaptive) in [
        // The document prints the line without the value of its first option.
        (
            "volume modify -volume vol2 -qos-policy-group -qos-adaptive-policy-group adaptive-policy2",
            "vol2",
            None,
            Some(""),
            "adaptive-policy2",
        ),
        ("volume modify -volume vol2 -qos-adaptive-policy-group none", "vol2", None, None, "none"),
        (
            "volume modify -volume vol2 -qos-adaptive-policy-group adaptive-policy2",
            "vol2",
            None,
            None,
            "adaptive-policy2",
        ),
        (
            "vol modify -vserver svm01 -volume vol2 -qos-adaptive-policy-group adaptive-policy2",
            "vol2",
            Some("svm01"),
            None,
            "adaptive-policy2",
        ),
    ] {
        let command = read(line).unwrap();
        let Command::Volume { command: VolumeCommand::Modify(arguments) } = command else {
            panic!("{line}: {command:?}");
        };
        assert_eq!((arguments.name.get(), arguments.tenant.tenant.as_deref()), (volume, tenant), "{line}");
        assert_eq!(arguments.changes.policy_group.as_deref(), fixed, "{line}");
        assert_eq!(arguments.changes.adaptive_policy_group.as_deref(), Some(adaptive), "{line}");
    }
}

#[test]
fn tenant_policy_lines_of_ontap_are_accepted() {
    for (line, policy, template) in [
        ("tenant modify svm01 --qos-policy-group all", Some("all"), None),
        ("vserver modify -vserver svm01 -qos-policy-group all", Some("all"), None),
        ("tenant modify --tenant svm01 --default-policy-group extreme", None, Some("extreme")),
        (
            "tenant modify svm01 --default-policy-group none --qos_policy_group NONE",
            Some("NONE"),
            Some("none"),
        ),
    ] {
        let command = read(line).unwrap();
        let Command::Tenant { command: TenantCommand::Modify(arguments) } = command else {
            panic!("{line}: {command:?}");
        };
        assert_eq!(arguments.name.get(), "svm01", "{line}");
        let changes = (arguments.changes.policy_group, arguments.changes.default_policy_group);
        assert_eq!((changes.0.as_deref(), changes.1.as_deref()), (policy, template), "{line}");
    }
}

#[test]
fn all_terms_of_a_policy_group_can_be_named() {
    let line = "qos policy-group modify p -min-throughput 100IOPS --burst 2000IOPS --burst-read 1MB/s \
        --burst-write none --burst-seconds 30 --burst-credit FULL --weight 7 --iops-size 4KiB \
        --charge discard=4,flush=1 --parent none";
    let command = read(line).unwrap();
    let Command::Qos {
        command: QosCommand::PolicyGroup { command: PolicyGroupCommand::Modify { terms, parent, .. } },
    } = command
    else {
        panic!("{command:?}");
    };
    let TermsArguments { min_throughput, burst, burst_read, burst_write, .. } = *terms;
    assert_eq!((min_throughput, burst, burst_read), (rates("100IOPS"), rates("2000IOPS"), rates("1MB/s")));
    assert_eq!((burst_write, terms.burst_seconds, terms.weight), (rates("none"), Some(30), Some(7)));
    assert_eq!((terms.burst_credit, parent.as_deref()), (Some(InitialCredit::Full), Some("none")));
    assert_eq!(terms.iops_size, Some(OperationSize::Bytes(4096)));
    let charge = terms.charge.unwrap();
    assert_eq!((charge.discard, charge.zeroes, charge.flush), (Some(4), None, Some(1)));
}

#[test]
fn latency_and_characteristics_take_the_options_of_performance() {
    for line in [
        "qos statistics volume latency show",
        "qos statistics vol latency show vol1 -vserver svm01 --interval 2 --iterations 5 -o yaml",
        "qos statistics volume latency show -volume vol1",
        "qos statistics volume characteristics show -VOL vol1 -o json",
        "qos statistics volume performance show vol1",
        "qos explain vol1",
        "QoS Explain -vserver svm01 -volume vol1 -interval 0.5s -o json",
    ] {
        assert!(matches!(read(line), Ok(Command::Qos { .. })), "{line}");
    }
    for (line, words) in [
        ("qos explain", "required"),
        ("qos explain vol1 --interval 61", "'61' is not a number of seconds from 0.1 to 60"),
        ("qos statistics volume latency show vol1 -volume vol2", "cannot be used with"),
    ] {
        let error = read(line).unwrap_err();
        assert!(error.contains(words), "{line}: {error}");
    }
}
