//! Objects that a user of the cluster makes: claims, pods and snapshots.

use serde_json::{Value, json};

use super::cluster::CLUSTER_IMAGE;

/// Where pods have their volume.
pub const MOUNT: &str = "/data";
/// File whose appearance tells the writer to end.
pub const END: &str = "/data/end";
/// What the writer's mark says.
pub const MARK: &str = "this was written before";
/// Writes the mark to a file, without a sync: a snapshot of a frozen filesystem has it.
pub const WRITE_MARK: &str = "echo this was written before > /data/mark";

/// fio writes blocks with a checksum at random places, and verifies each, again and again until the file appears.
const WRITE: &str = "while ! busybox test -e /data/end; do \
    fio --name=load --directory=/data --size=32M --rw=randwrite --bs=4k --direct=1 --ioengine=psync --numjobs=2 \
    --verify=crc32c --verify_fatal=1 --fallocate=none --minimal > /dev/null || exit 1; done; echo verified";

/// A claim.
pub fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
        },
    })
}

/// A class whose filesystem is XFS. ext4 grows in use only where root has CAP_SYS_RESOURCE, which it lacks on some hosts.
pub fn xfs_class(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "csi.weir",
        "parameters": {"fs": "xfs"},
        "allowVolumeExpansion": true,
    })
}

/// A pod that has a volume, and does nothing.
pub fn idle(name: &str, claim: &str) -> Value {
    pod(name, claim, "busybox sleep 3600")
}

/// A claim whose volume has the data of a source: API group, kind and name.
pub fn with_source(name: &str, class: &str, (group, kind, source): (&str, &str, &str)) -> Value {
    let mut claim = claim(name, class, "1Gi");
    claim["spec"]["dataSource"] = json!({"apiGroup": group, "kind": kind, "name": source});
    if group.is_empty() {
        claim["spec"]["dataSource"] = json!({"kind": kind, "name": source});
    }
    claim
}

/// A snapshot of a claim.
pub fn snapshot(name: &str, claim: &str) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": {"name": name},
        "spec": {"volumeSnapshotClassName": "weir", "source": {"persistentVolumeClaimName": claim}},
    })
}

/// A pod that writes and verifies until it is told to end.
pub fn writer(name: &str, claim: &str) -> Value {
    pod(name, claim, WRITE)
}

/// A pod that shows the mark.
pub fn reader(name: &str, claim: &str) -> Value {
    pod(name, claim, "busybox cat /data/mark")
}

fn pod(name: &str, claim: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            // There is no other network.
            "hostNetwork": true,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": CLUSTER_IMAGE,
                "imagePullPolicy": "Never",
                "command": ["busybox", "sh", "-c", script],
                "volumeMounts": [{"name": "data", "mountPath": MOUNT}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    })
}
