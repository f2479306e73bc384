//! Arguments of the commands about tenants.

use clap::{Args, Subcommand};

use super::{OptionalTenantName, ReadArguments, TenantName};

/// Commands about tenants.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Create a tenant
    #[command(after_help = "Example:\n  weir tenant create svm01")]
    Create {
        #[command(flatten)]
        name: TenantName,
    },
    /// List tenants
    #[command(after_help = "Example:\n  weir tenant list\n  weir tenant list -o wide")]
    List(ReadArguments),
    /// Show a tenant with all its fields, or list the tenants
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir tenant show svm01")]
    Show {
        #[command(flatten)]
        name: OptionalTenantName,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Change a tenant's policy, or the default policy group of its new volumes
    #[command(
        visible_alias = "update",
        after_help = "Example:\n  weir tenant modify svm01 --policy-group all-of-svm01 --default-policy-group extreme\n  weir vserver modify -vserver svm01 -qos-policy-group none"
    )]
    Modify(TenantModifyArguments),
    /// Delete a tenant that owns nothing
    #[command(visible_alias = "remove", after_help = "Example:\n  weir tenant delete svm01")]
    Delete {
        #[command(flatten)]
        name: TenantName,
    },
}

/// Arguments of a change of a tenant.
#[derive(Debug, Args)]
pub struct TenantModifyArguments {
    #[command(flatten)]
    pub name: TenantName,
    #[command(flatten)]
    pub changes: TenantChanges,
    /// Bind a floor that the pools of its volumes cannot meet; an alarm shows it
    #[arg(long)]
    pub force: bool,
}

/// The changes; at least one is required.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct TenantChanges {
    /// Shared policy group whose terms apply to all volumes of the tenant together, or 'none'
    #[arg(long, value_name = "POLICY_GROUP|none", visible_alias = "qos-policy-group")]
    pub policy_group: Option<String>,
    /// Default policy group, fixed or adaptive, of volumes created without one, or 'none'
    #[arg(long, value_name = "POLICY_GROUP|none")]
    pub default_policy_group: Option<String>,
}
