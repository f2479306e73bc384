//! Dry run: the policy levels that apply to a trace's volumes under a given policy set.
//!
//! The dry run uses the daemon's rules on records that are made for the purpose. It does not touch the
//! daemon's state.

use std::collections::BTreeSet;

use jiff::Timestamp;
use weir_replay::trace::Header;
use weir_types::name::DEFAULT_TENANT;
use weir_types::{ClassPolicy, FlushTerms, IoProfile, Name, VolumeId};

use crate::apply::PolicySet;
use crate::catalogue::Revision;
use crate::error::Outcome;
use crate::model::Model;
use crate::recording::trace_levels;
use crate::records::{DEFAULT_CLASS, Placement, TenantRecord, VolumeRecord, VolumeState};

/// Size in bytes of a volume that the set names and the trace lacks. The volume does no I/O.
const ABSENT_VOLUME_BYTES: u64 = 1 << 30;

/// Puts the volumes of a header under the policies of a set.
///
/// A missing section of the set counts as empty. Tenants and volumes that only the set names are assumed to
/// exist and do no I/O.
///
/// # Errors
/// If applying the set would be refused.
pub fn put_under(header: &mut Header, set: &PolicySet) -> Outcome<()> {
    let mut model = model_of(header, set);
    super::apply::put(&mut model, set)?;
    for volume in &mut header.volumes {
        let record = model.volume(Some(&volume.tenant), &volume.name)?.record.clone();
        volume.levels = trace_levels(&model, &record, volume.used_bytes);
    }
    Ok(())
}

fn model_of(header: &Header, set: &PolicySet) -> Model {
    let mut model = Model::default();
    let default = || Name::new(DEFAULT_TENANT).expect("the name of the default tenant is one");
    let entries = set.volumes.iter().flatten();
    let named = entries.map(|entry| (entry.tenant.clone(), entry.name.clone(), ABSENT_VOLUME_BYTES));
    let recorded = header.volumes.iter();
    let recorded =
        recorded.map(|volume| (Some(volume.tenant.clone()), volume.name.clone(), volume.size_bytes));
    let tenants: BTreeSet<Name> = [default()]
        .into_iter()
        .chain(header.volumes.iter().map(|volume| volume.tenant.clone()))
        .chain(set.tenants.iter().flatten().map(|entry| entry.name.clone()))
        .chain(set.volumes.iter().flatten().filter_map(|entry| entry.tenant.clone()))
        .chain(set.policy_groups.iter().flatten().filter_map(|entry| entry.tenant.clone()))
        .chain(set.adaptive_policy_groups.iter().flatten().filter_map(|entry| entry.tenant.clone()))
        .collect();
    for name in tenants {
        let record = TenantRecord {
            name,
            policy_group: None,
            default_policy_group: None,
            created_at: Timestamp::UNIX_EPOCH,
        };
        model.put_tenant(record, Revision::ABSENT);
    }
    for ((tenant, name, size_bytes), number) in recorded.chain(named).zip(1..) {
        if model.volume(tenant.as_ref(), &name).is_ok() {
            continue;
        }
        let tenant = tenant.unwrap_or_else(default);
        model.put_volume(volume_record(number, tenant, name, size_bytes), Revision::ABSENT);
    }
    model
}

fn volume_record(number: u128, tenant: Name, name: Name, size_bytes: u64) -> VolumeRecord {
    VolumeRecord {
        id: VolumeId(uuid::Uuid::from_u128(number)),
        tenant,
        name,
        size_bytes,
        placement: Placement::default(),
        replicas: 1,
        template: None,
        io_priority: DEFAULT_CLASS,
        class_policy: ClassPolicy::Any,
        io_profile: IoProfile::default(),
        flush_terms: FlushTerms::default(),
        generation: 0,
        policy_group: None,
        cgroups: Vec::new(),
        is_read_only: false,
        snapshot: None,
        cloned_from: None,
        state: VolumeState::Online,
        created_at: Timestamp::UNIX_EPOCH,
        deleted_at: None,
        absent_journals: Vec::new(),
    }
}
