//! Names of objects, by position or as an option, and the tenant that they belong to.
//!
//! Every command names the same kind of object by the same struct, so that its options are the same everywhere.

use clap::Args;

/// The tenant of the named object.
#[derive(Clone, Debug, Default, Args)]
pub struct TenantOption {
    /// Tenant of the object [default: default]
    #[arg(long, value_name = "TENANT", visible_alias = "vserver", alias = "svm")]
    pub tenant: Option<String>,
}

/// The tenant that a list is restricted to.
#[derive(Clone, Debug, Default, Args)]
pub struct TenantFilter {
    /// Only objects of this tenant
    #[arg(long, value_name = "TENANT", visible_alias = "vserver", alias = "svm")]
    pub tenant: Option<String>,
}

/// The tenant of the object to show, or of the objects if none is named.
#[derive(Clone, Debug, Default, Args)]
pub struct TenantOfShown {
    /// Tenant of the object [default: default]; without a name, only objects of this tenant
    #[arg(long, value_name = "TENANT", visible_alias = "vserver", alias = "svm")]
    pub tenant: Option<String>,
}

/// A volume, named by position or by option.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct VolumeName {
    /// The volume; TENANT/VOLUME for one of another tenant
    #[arg(value_name = "VOLUME")]
    name: Option<String>,
    /// The volume, as an option
    #[arg(long, value_name = "VOLUME", alias = "vol")]
    volume: Option<String>,
}

impl VolumeName {
    /// Name of the volume, from either place.
    pub fn get(&self) -> &str {
        self.name.as_deref().or(self.volume.as_deref()).unwrap_or_default()
    }
}

/// An optional volume, named by position or by option.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub struct OptionalVolumeName {
    /// Only this volume
    #[arg(value_name = "VOLUME")]
    name: Option<String>,
    /// Only this volume, as an option
    #[arg(long, value_name = "VOLUME", alias = "vol")]
    volume: Option<String>,
}

impl OptionalVolumeName {
    /// Name of the volume, from either place, if there is one.
    pub fn get(&self) -> Option<&str> {
        self.name.as_deref().or(self.volume.as_deref())
    }
}

/// A policy group, named by position or by option.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct PolicyGroupName {
    /// The policy group
    #[arg(value_name = "POLICY_GROUP")]
    name: Option<String>,
    /// The policy group, as an option
    #[arg(long, value_name = "POLICY_GROUP")]
    policy_group: Option<String>,
}

impl PolicyGroupName {
    /// Name of the policy group, from either place.
    pub fn get(&self) -> &str {
        self.name.as_deref().or(self.policy_group.as_deref()).unwrap_or_default()
    }
}

/// An optional policy group, named by position or by option.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub struct OptionalPolicyGroupName {
    /// Show only this policy group, with all its fields
    #[arg(value_name = "POLICY_GROUP")]
    name: Option<String>,
    /// The policy group, as an option
    #[arg(long, value_name = "POLICY_GROUP")]
    policy_group: Option<String>,
}

impl OptionalPolicyGroupName {
    /// Name of the policy group, from either place, if there is one.
    pub fn get(&self) -> Option<&str> {
        self.name.as_deref().or(self.policy_group.as_deref())
    }
}

/// A tenant, named by position or by option.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TenantName {
    /// The tenant
    #[arg(value_name = "TENANT")]
    name: Option<String>,
    /// The tenant, as an option
    #[arg(long, value_name = "TENANT", visible_alias = "vserver", alias = "svm")]
    tenant: Option<String>,
}

impl TenantName {
    /// Name of the tenant, from either place.
    pub fn get(&self) -> &str {
        self.name.as_deref().or(self.tenant.as_deref()).unwrap_or_default()
    }
}

/// An optional tenant, named by position or by option.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub struct OptionalTenantName {
    /// Show only this tenant, with all its fields
    #[arg(value_name = "TENANT")]
    name: Option<String>,
    /// The tenant, as an option
    #[arg(long, value_name = "TENANT", visible_alias = "vserver", alias = "svm")]
    tenant: Option<String>,
}

impl OptionalTenantName {
    /// Name of the tenant, from either place, if there is one.
    pub fn get(&self) -> Option<&str> {
        self.name.as_deref().or(self.tenant.as_deref())
    }
}

/// The policy group of a new volume.
#[derive(Clone, Debug, Default, Args)]
pub struct BindingOptions {
    /// Policy group of its tenant to bind it to [default: that of a template that is named too, else the tenant's
    /// default policy group]
    #[arg(
        long,
        value_name = "POLICY_GROUP|none",
        visible_alias = "qos-policy-group",
        conflicts_with = "adaptive_policy_group"
    )]
    pub policy_group: Option<String>,
    /// Adaptive policy group of its tenant to bind it to
    #[arg(long, value_name = "POLICY_GROUP", visible_alias = "qos-adaptive-policy-group")]
    pub adaptive_policy_group: Option<String>,
}
