//! Pages of the how-to guides: what each needs before its commands work, and the commands that are passed
//! over.

use Step::{Load, Run, Until};

/// Page, and the world of its reader.
pub struct Page {
    /// Name of the file without suffix.
    pub name: &'static str,
    /// Steps before the first command.
    pub preparation: &'static [Step],
    /// Steps before a later command: what the reader does, or what happens, between two commands.
    pub before: &'static [(&'static str, &'static [Step])],
    /// Words that differ here: durations that a test does not wait for, and groups that the host may not have.
    pub replaced: &'static [(&'static str, &'static str)],
    /// Commands that are not run.
    pub passed_over: &'static [PassedOver],
}

/// Step of a preparation.
pub enum Step {
    /// Runs a command, mapped like a command of the page.
    Run(&'static str),
    /// Repeats a command until it prints a text.
    Until(&'static str, &'static str),
    /// Lets a client read and write a volume until the page ends.
    Load(&'static str),
}

/// Command that is not run.
pub struct PassedOver {
    pub command: &'static str,
    pub reason: &'static str,
    /// Test that runs the same: `PROGRAM::TEST`, `guest::CASE` or [`NONE`].
    pub covered_by: &'static str,
}

/// Page without steps of any kind.
const PLAIN: Page = Page { name: "", preparation: &[], before: &[], replaced: &[], passed_over: &[] };

const ATTACHING: &str = "guest::attaching_with_nbd_client_works_as_printed";
const TUTORIAL: &str = "guest::tutorial_and_readme_work_as_printed";
const ITSELF: &str = "documents::every_command_of_the_how_to_guides_works_as_printed";
pub const NONE: &str = "no test";
const NBD: &str = "it needs the kernel's NBD client";
const DEVICE: &str = "it needs a block device of its own";
const DOCKER: &str = "docker::containers_use_volumes_and_leave_nothing";
const IMAGES: &str = "it needs a Docker engine with an image from a registry";
const SYSTEMD: &str = "it needs systemd";
const CLUSTER: &str = "it needs a Kubernetes cluster, as `cargo xtask kubernetes` starts";

const fn passed(command: &'static str, reason: &'static str, covered_by: &'static str) -> PassedOver {
    PassedOver { command, reason, covered_by }
}

/// Two drives of class `low` and three of class `high`, as template `hybrid` needs them.
const DRIVES_OF_HYBRID: Step = Run("for drive in high1 high2 high3 low1 low2; do mkdir /srv/$drive; \
     weir drive add /srv/$drive --class ${drive%[123]} --no-measurement; done");

/// All pages with commands.
pub const PAGES: [Page; 26] = [
    Page {
        name: "add-a-drive",
        preparation: &[Run("mkdir /srv/drive1 /srv/drive2 /srv/left /srv/disk /srv/slow /srv/far")],
        passed_over: &[
            passed(
                "weir drive add /dev/sdb --format",
                DEVICE,
                "block_devices::block_device_is_formatted_used_and_removed",
            ),
            passed(
                "wipefs --no-act /dev/sdb",
                DEVICE,
                "block_devices::used_or_unsuitable_devices_are_refused_with_cause",
            ),
            passed(
                "wipefs --all /dev/sdb",
                DEVICE,
                "block_devices::used_or_unsuitable_devices_are_refused_with_cause",
            ),
        ],
        ..PLAIN
    },
    Page {
        name: "apply-policies-from-a-file",
        preparation: &[
            Run("weir volume create vol1 --size 1"),
            Run("weir policy-group create bronze --max-throughput 500IOPS"),
            Run("weir volume modify vol1 --policy-group bronze"),
        ],
        ..PLAIN
    },
    Page {
        name: "attach-as-a-block-device",
        preparation: &[Run("weir volume create data --size 1")],
        passed_over: &[
            passed("systemctl daemon-reload", SYSTEMD, NONE),
            passed("systemctl enable --now weir-data", SYSTEMD, NONE),
            passed(
                "resize2fs /dev/weir/default/data",
                "it needs a capability (CAP_SYS_RESOURCE) that a container may lack",
                "attachments::attached_volume_grows_and_gives_space_back",
            ),
        ],
        ..PLAIN
    },
    Page {
        name: "attach-to-qemu",
        preparation: &[Run("weir volume create data --size 1")],
        // The machine does not run: QEMU opens the volume, and quits.
        replaced: &[(
            "qemu-system-x86_64 -m 1G",
            "echo quit | qemu-system-x86_64 -m 64 -S -display none -monitor stdio",
        )],
        ..PLAIN
    },
    Page {
        name: "attach-with-nbd-client",
        preparation: &[Run("weir volume create data --size 1")],
        passed_over: &[
            passed("modprobe nbd", NBD, ATTACHING),
            passed("nbd-client -unix /run/weir/nbd.sock -N data /dev/nbd0", NBD, ATTACHING),
            passed("mkfs.ext4 /dev/nbd0", NBD, ATTACHING),
            passed("mkdir -p /mnt/data", NBD, ATTACHING),
            passed("mount /dev/nbd0 /mnt/data", NBD, ATTACHING),
            passed("umount /mnt/data", NBD, ATTACHING),
            passed("nbd-client -d /dev/nbd0", NBD, ATTACHING),
            passed(
                "nbd-client -unix /run/weir/nbd.sock -N data@before-upgrade -readonly /dev/nbd1",
                NBD,
                ATTACHING,
            ),
            passed("mkdir -p /mnt/snapshot", NBD, ATTACHING),
            passed("mount -o ro,noload /dev/nbd1 /mnt/snapshot", NBD, ATTACHING),
            passed("fstrim /mnt/data", NBD, ATTACHING),
            passed("umount /mnt/snapshot", NBD, ATTACHING),
            passed("nbd-client -d /dev/nbd1", NBD, ATTACHING),
        ],
        ..PLAIN
    },
    Page {
        name: "coalesce-flushes",
        preparation: &[Run("for drive in enclosure1 enclosure2; do mkdir /srv/$drive; \
             weir drive add /srv/$drive --class high --no-measurement; done")],
        ..PLAIN
    },
    Page {
        name: "dry-run-a-recording",
        preparation: &[
            Run("weir volume create vol1 --size 1"),
            Run("weir volume create vol2 --size 1"),
            Load("vol1"),
            Load("vol2"),
        ],
        replaced: &[("--seconds 60", "--seconds 1")],
        ..PLAIN
    },
    Page {
        name: "find-why-a-volume-is-slow",
        preparation: &[Run("weir volume create data --size 1")],
        replaced: &[("--interval 2", "--interval 2 --iterations 1")],
        ..PLAIN
    },
    Page { name: "give-a-database-a-journal", ..PLAIN },
    Page { name: "give-access", ..PLAIN },
    Page {
        name: "guarantee-a-floor",
        preparation: &[
            Run("mkdir /srv/drive1 /srv/fast"),
            Run("weir drive add /srv/drive1 --class high --no-measurement"),
            Run("weir drive add /srv/fast --class high --emulate iops=21000,bandwidth=250MB/s,latency=200us"),
            Run("weir volume create vol1 --size 1 --class high"),
        ],
        ..PLAIN
    },
    Page { name: "limit-a-neighbour", preparation: &[Run("weir volume create vol1 --size 1")], ..PLAIN },
    Page { name: "limit-processes", preparation: &[Run("weir volume create data --size 1")], ..PLAIN },
    Page {
        name: "move-a-volume",
        preparation: &[
            DRIVES_OF_HYBRID,
            Run("mkdir /srv/low3"),
            Run("weir drive add /srv/low3 --class low --no-measurement"),
            Run("weir volume create vol1 --size 1 --class high"),
        ],
        ..PLAIN
    },
    Page {
        name: "remove-a-drive",
        preparation: &[
            Run("mkdir /srv/drive1 /srv/drive2"),
            Run("weir drive add /srv/drive1 --class high --no-measurement"),
            Run("weir drive add /srv/drive2 --class high --no-measurement"),
            Run("weir volume create vol1 --size 1 --drive drive1"),
        ],
        before: &[
            ("weir drive list", DRAIN_AGAIN),
            ("weir drive remove drive1 --cancel", &[Run("weir drive remove drive1 --wait")]),
            ("weir drive remove drive1 --cancel", DRAIN_AGAIN),
        ],
        ..PLAIN
    },
    Page {
        name: "replace-a-failed-drive",
        preparation: &[
            Run("mkdir /srv/slow /srv/low1 /srv/low2"),
            Run("weir drive add /srv/slow --class low --no-measurement"),
            Run("weir drive add /srv/low1 --class low --no-measurement"),
            Run("weir volume create vol1 --size 1 --class low --replicas 2"),
            Run("weir snapshot create vol1@before-upgrade"),
            Run("weir drive add /srv/low2 --class low --no-measurement"),
            Run("mv /srv/slow /srv/away"),
            Until("weir alarm list", "drive 'slow'"),
        ],
        before: &[(
            // The page replaces the drive twice, so it fails again before the second time.
            "weir drive remove slow --wait",
            &[
                Run("weir drive show slow || { mkdir /srv/slow && weir drive add /srv/slow --class low \
                     --no-measurement && mv /srv/slow /srv/away2; }"),
                Until("weir alarm list", "drive 'slow'"),
            ],
        )],
        passed_over: &[
            passed(
                "weir drive add /dev/sdc --format",
                DEVICE,
                "block_devices::block_device_is_formatted_used_and_removed",
            ),
            passed(
                "weir drive accept slow",
                "it needs a drive whose flush fails",
                "guest::start_after_one_whose_sync_failed_knows_it",
            ),
        ],
        ..PLAIN
    },
    Page {
        name: "restore-a-lost-catalogue",
        preparation: &[
            Run("weir volume create vol1 --size 1"),
            Run("weir snapshot create vol1@before-upgrade"),
        ],
        ..PLAIN
    },
    Page {
        name: "run-as-a-service",
        passed_over: &[
            passed("make build", "the tests run a daemon that is built already", NONE),
            passed("install target/release/weir /usr/bin/weir", "the page upgrade runs it", ITSELF),
            passed(
                "install --mode=644 packaging/systemd/weir.service /etc/systemd/system/weir.service",
                SYSTEMD,
                TUTORIAL,
            ),
            passed("systemctl daemon-reload", SYSTEMD, NONE),
            passed("systemctl enable --now weir", SYSTEMD, TUTORIAL),
            passed("systemctl edit weir", SYSTEMD, NONE),
            passed(
                "nsenter --mount --target $(systemctl show --property=MainPID --value weir) \
                 fstrim /var/lib/weir/mounts/ID",
                SYSTEMD,
                NONE,
            ),
            passed("journalctl --unit=weir", SYSTEMD, NONE),
            passed("journalctl --unit=weir --grep='who='", SYSTEMD, NONE),
        ],
        ..PLAIN
    },
    Page {
        name: "scrub-and-repair",
        preparation: &[
            Run("weir volume create vol1 --size 1"),
            Run("weir snapshot create vol1@before-upgrade"),
        ],
        ..PLAIN
    },
    Page {
        name: "size-a-journal",
        preparation: &[DRIVES_OF_HYBRID, Run("weir volume create vol1 --size 1 --template hybrid")],
        ..PLAIN
    },
    Page {
        name: "snapshot-and-clone",
        preparation: &[
            Run("weir volume create vol1 --size 1"),
            Run("weir volume create data --size 1"),
            Run("weir volume create log --size 1"),
        ],
        ..PLAIN
    },
    Page {
        name: "upgrade",
        preparation: &[Run("weir volume create vol1 --size 1")],
        passed_over: &[
            passed("umount /mnt/data", NBD, ATTACHING),
            passed("nbd-client -d /dev/nbd0", NBD, ATTACHING),
        ],
        ..PLAIN
    },
    Page { name: "use-nbd-programs", preparation: &[Run("weir volume create data --size 1")], ..PLAIN },
    Page { name: "use-templates", preparation: &[DRIVES_OF_HYBRID], ..PLAIN },
    Page {
        name: "use-volumes-in-docker",
        preparation: &[
            Run("mkdir /srv/high1"),
            Run("weir drive add /srv/high1 --class high --no-measurement"),
            Run("weir volume create logs --size 1"),
        ],
        passed_over: &[
            passed(
                "install --mode=644 packaging/systemd/weir-docker.service \
                 /etc/systemd/system/weir-docker.service",
                SYSTEMD,
                NONE,
            ),
            passed("systemctl enable --now weir-docker", SYSTEMD, NONE),
            passed(
                "docker volume create -d weir -o size=10G -o repl=2 -o io_priority=high data",
                IMAGES,
                DOCKER,
            ),
            passed("docker run --rm -v data:/data --volume-driver weir debian df -h /data", IMAGES, DOCKER),
            passed(
                "docker run --rm -v size=10G,io_priority=low,name=logs:/logs --volume-driver weir debian \
                 df -h /logs",
                IMAGES,
                DOCKER,
            ),
            passed(
                "docker run --rm -v test-high:/test --volume-driver weir debian df -h /test",
                IMAGES,
                DOCKER,
            ),
            passed("docker volume rm logs", IMAGES, DOCKER),
        ],
        ..PLAIN
    },
    Page {
        name: "use-volumes-in-kubernetes",
        passed_over: &[
            passed("kubectl label node NODE weir/storage=true", CLUSTER, NONE),
            passed("helm install weir deploy/helm/weir --namespace weir --create-namespace", CLUSTER, NONE),
            passed("kubectl apply -f deploy/examples/storage-classes.yaml", CLUSTER, NONE),
            passed("kubectl apply -f deploy/examples/database.yaml", CLUSTER, NONE),
            passed("kubectl get pvc database", CLUSTER, NONE),
            passed("kubectl apply -f deploy/examples/volume-attributes-classes.yaml", CLUSTER, NONE),
            passed(
                "kubectl patch pvc database --patch '{\"spec\": {\"volumeAttributesClassName\": \"slow\"}}'",
                CLUSTER,
                NONE,
            ),
            passed("kubectl apply -f deploy/examples/snapshot-classes.yaml", CLUSTER, NONE),
        ],
        ..PLAIN
    },
];

/// Adds the drive again with data, and drains it so slowly that the drain does not end.
const DRAIN_AGAIN: &[Step] = &[
    Run("weir background-policy modify resync --max-throughput 1IOPS"),
    Run("weir drive add /srv/drive1 --class high --no-measurement"),
    Run("name=volume$(date +%N) && weir volume create $name --size 1 --drive drive1 && \
         head --bytes=16M /dev/urandom > data.img && \
         nbdcopy data.img \"nbd+unix:///$name?socket=/run/weir/nbd.sock\""),
    Run("weir drive remove drive1"),
];
