//! Pools: capacity, floors and over-commitment.

use serde_json::json;

use super::*;

/// Over-commits the pool of an emulated drive, which is refused first.
pub(super) fn call_pools(api: &mut World) {
    const POOL: &str = "/v1/pools/{pool}";
    let folder = tempfile::tempdir().unwrap();
    let emulation = json!({"iops": 2000});
    let body = json!({
        "path": folder.path(), "name": "slow", "queue_target": 9, "emulation": emulation, "measure": false,
    });
    api.call("POST", "/v1/drives", "", Some(body), 201);
    let body = json!({"name": "floor", "floor": {"iops": 1200}, "is_shared": false});
    api.call("POST", GROUPS, "", Some(body), 201);
    let mut volume = volume_with("drive", "slow");
    volume["qos_policy_group"] = json!("floor");
    api.call("POST", VOLUMES, "", Some(volume.clone()), 201);
    volume["name"] = json!("y");
    let refused = api.call("POST", VOLUMES, "", Some(volume.clone()), 409);
    let message = message_of(&refused);
    assert!(
        message.starts_with("pool 'slow' would be over-committed: floors of 1200IOPS bound"),
        "{message}"
    );
    volume["force"] = json!(true);
    api.call("POST", VOLUMES, "", Some(volume), 201);
    let pool = api.call("GET", POOL, "slow", None, 200);
    assert_eq!((&pool["is_over_committed"], &pool["floors"]["iops"]), (&json!(true), &json!(2400)));
    assert_eq!((&pool["capacity"]["iops"], &pool["free"]["iops"]), (&json!(2000), &json!(0)));
    let (origin, iops) = ("policy group floor", 1200);
    let claim = json!({"tenant": "default", "scope": "volume", "name": "x", "origin": origin, "iops": iops});
    assert_eq!((&pool["claims"][0], pool["claims"].as_array().unwrap().len()), (&claim, 2));
    assert_eq!(pool["in_flight"], json!({"operations": 9, "origin": "chosen"}));
    let metrics = api.call("GET", "/metrics", "", None, 200);
    for (gauge, value) in [("capacity_iops", "2000.0"), ("floors_iops", "2400.0"), ("reserve_iops", "100.0")]
    {
        let line = format!("weir_pool_{gauge}{{pool=\"slow\",emulated=\"iops=2000\"}} {value}");
        assert!(metrics.as_str().unwrap().contains(&line), "{line} in {metrics}");
    }
    let is_told = |line: &str| metrics.as_str().unwrap().contains(line);
    assert!(is_told("weir_pool_over_commit_ratio{pool=\"default\"} 1.0"), "{metrics}");
    assert!(!is_told("weir_pool_capacity_iops{pool=\"default\"}"), "{metrics}");
    let status = api.call("GET", "/v1/status", "", None, 200);
    assert_eq!((&status["alarms"][0]["code"], &status["status"]), (&json!("ledger"), &json!("degraded")));
    api.call("PATCH", POOL, "slow", Some(json!({"over_commit_percent": 9})), 400);
    api.call("PATCH", POOL, "slow", Some(json!({"reserve_percent": 6})), 409);
    let pool =
        api.call("PATCH", POOL, "slow", Some(json!({"over_commit_percent": 125, "queue_target": 0})), 200);
    assert_eq!((&pool["is_over_committed"], pool.get("queue_target")), (&json!(false), None));
    let pools = api.call("GET", "/v1/pools", "", None, 200);
    let names: Vec<_> = pools["items"].as_array().unwrap().iter().map(|pool| &pool["name"]).collect();
    assert_eq!((names, pools["items"][0].get("capacity")), (vec![&json!("default"), &json!("slow")], None));
    for volume in ["x", "y"] {
        api.call("DELETE", VOLUME, volume, None, 204);
    }
    api.call("DELETE", GROUP, "floor", None, 204);
    weir_control::testing::settle(&api.control);
    api.call("DELETE", "/v1/drives/{drive}", "slow", None, 202);
    api.call("GET", POOL, "slow", None, 404);
}
