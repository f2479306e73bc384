//! Calls about cgroups with limits of their own.

use super::*;

/// A cgroup of this host: the root of a hierarchy that is mounted.
fn some_cgroup() -> String {
    let hierarchy = weir_testkit::cgroup::hierarchy().unwrap();
    hierarchy.expect("a hierarchy of cgroups is mounted").to_string_lossy().into_owned()
}

/// Binds a cgroup on a volume.
pub(super) fn call_cgroups(api: &mut World) {
    const CGROUPS: &str = "/v1/tenants/{tenant}/volumes/{volume}/cgroups";
    const CGROUP: &str = "/v1/tenants/{tenant}/volumes/{volume}/cgroups/{binding}";
    api.call("POST", VOLUMES, "", Some(json!({"name": "limited", "size_bytes": 1u64 << 20})), 201);
    for (group, is_shared) in [("slow", false), ("slower", false), ("common", true)] {
        let body = json!({"name": group, "is_shared": is_shared, "limits": {"total": {"iops": 100}}});
        api.call("POST", GROUPS, "", Some(body), 201);
    }
    let bind = |cgroup: &str, group: &str| Some(json!({"cgroup": cgroup, "policy_group": group}));
    let cgroup = some_cgroup();
    api.call("POST", CGROUPS, "limited", bind("/proc", "slow"), 400);
    api.call("POST", CGROUPS, "limited", bind(&cgroup, "common"), 409);
    let bound = api.call("POST", CGROUPS, "limited", bind(&cgroup, "slow"), 201);
    api.call("POST", CGROUPS, "limited", bind(&cgroup, "slow"), 409);
    assert_eq!(api.call("GET", CGROUPS, "limited", None, 200)["items"], json!([bound]));
    let id = format!("limited#{}", bound["id"].as_str().unwrap());
    let body = Some(json!({"policy_group": "slower"}));
    assert_eq!(api.call("PATCH", CGROUP, &id, body, 200)["policy_group"], "slower");
    api.call("DELETE", GROUP, "slower", None, 409);
    assert_eq!(api.call("GET", CGROUP, &id, None, 200)["cgroup"], json!(cgroup));
    api.call("DELETE", CGROUP, &id, None, 204);
    api.call("GET", CGROUP, &id, None, 404);
    for group in ["slow", "slower", "common"] {
        api.call("DELETE", GROUP, group, None, 204);
    }
    api.call("DELETE", VOLUME, "limited", None, 204);
}
