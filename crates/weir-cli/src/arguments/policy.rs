//! Arguments of the commands about policy groups.

use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use weir_types::adaptive::{parse_block_size, parse_iops_per_tb};
use weir_types::{Size, Throughput};

use super::{
    OptionalPolicyGroupName, PolicyGroupName, ReadArguments, TenantFilter, TenantOfShown, TenantOption,
};
use weir_api_types::{ChargesModify, InitialCredit, OperationSize, PeakMode, Space};

/// Terms of a policy group; an absent option keeps its value.
#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = true)]
pub struct TermsArguments {
    /// Ceiling on reads and writes together, for example 1000IOPS, 300MB/s or 1000IOPS,300MB/s; 'none' for
    /// none
    #[arg(long, value_name = "RATES", value_parser = Throughput::parse, allow_hyphen_values = true)]
    pub max_throughput: Option<Throughput>,
    /// Ceiling on reads alone
    #[arg(long, value_name = "RATES", value_parser = Throughput::parse, allow_hyphen_values = true)]
    pub max_read: Option<Throughput>,
    /// Ceiling on writes alone
    #[arg(long, value_name = "RATES", value_parser = Throughput::parse, allow_hyphen_values = true)]
    pub max_write: Option<Throughput>,
    /// Floor: guaranteed minimum rate, for example 500IOPS or 20MB/s; 'none' for none
    #[arg(long, value_name = "RATE", value_parser = Throughput::parse, allow_hyphen_values = true)]
    pub min_throughput: Option<Throughput>,
    /// Burst rates above the ceilings, paid with credit earned below the ceilings; 'none' for none
    #[arg(long, value_name = "RATES", value_parser = Throughput::parse, allow_hyphen_values = true)]
    pub burst: Option<Throughput>,
    /// Burst rates of reads alone
    #[arg(long, value_name = "RATES", value_parser = Throughput::parse, allow_hyphen_values = true)]
    pub burst_read: Option<Throughput>,
    /// Burst rates of writes alone
    #[arg(long, value_name = "RATES", value_parser = Throughput::parse, allow_hyphen_values = true)]
    pub burst_write: Option<Throughput>,
    /// Time that a full credit lasts at the burst rates, 1 to 3600 seconds [default: 60]
    #[arg(long, value_name = "N")]
    pub burst_seconds: Option<u32>,
    /// Initial burst credit of a volume [default: empty]
    #[arg(long, value_name = "empty|full", value_enum, ignore_case = true, hide_possible_values = true)]
    pub burst_credit: Option<InitialCredit>,
    /// Weight, 1 to 10000: share of the remaining capacity in proportion to the weights of all competitors
    /// [default: 100]
    #[arg(long, value_name = "N")]
    pub weight: Option<u32>,
    /// Operations that a request counts as: one for each unit of this size, for example 4KiB; by Element's
    /// cost 'curve'; or one, 'any' [default: any]
    #[arg(long, value_name = "SIZE|curve|any", value_parser = operation_size)]
    pub iops_size: Option<OperationSize>,
    /// Operations that requests without data count as [default: discard=1,zeroes=1,flush=0]
    #[arg(long, value_name = "KIND=N,...", value_parser = charges)]
    pub charge: Option<ChargesModify>,
}

/// Commands about policy groups.
#[derive(Debug, Subcommand)]
pub enum PolicyGroupCommand {
    /// Create a policy group
    #[command(
        after_help = "Example:\n  weir policy-group create policy1 --tenant svm01 --max-throughput 10000IOPS,300MB/s --is-shared false\n  weir policy-group create gold --max-throughput 1000IOPS --burst 3000IOPS --burst-seconds 60 --weight 400"
    )]
    Create {
        #[command(flatten)]
        name: PolicyGroupName,
        #[command(flatten)]
        tenant: TenantOption,
        #[command(flatten)]
        terms: Box<TermsArguments>,
        /// Shared policy group of the same tenant to nest it in
        #[arg(long, value_name = "POLICY_GROUP|none")]
        parent: Option<String>,
        /// Whether all its volumes share one budget [default: true, as in ONTAP]
        #[arg(long, value_name = "true|false", action = clap::ArgAction::Set, default_value = "true", value_parser = BoolishValueParser::new())]
        is_shared: bool,
    },
    /// List policy groups
    #[command(
        after_help = "Example:\n  weir policy-group list\n  weir policy-group list --tenant svm01 -o wide"
    )]
    List {
        #[command(flatten)]
        tenant: TenantFilter,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show a policy group with all its fields, or list the policy groups
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir policy-group show policy1")]
    Show {
        #[command(flatten)]
        name: OptionalPolicyGroupName,
        #[command(flatten)]
        tenant: TenantOfShown,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Change the terms of a policy group, also while its volumes are in use
    #[command(
        visible_alias = "update",
        after_help = "Example:\n  weir policy-group modify policy1 --max-throughput 2000IOPS,200MB/s\n  weir policy-group modify policy1 --min-throughput 500IOPS --parent all-of-them"
    )]
    Modify {
        #[command(flatten)]
        name: PolicyGroupName,
        #[command(flatten)]
        tenant: TenantOption,
        #[command(flatten)]
        terms: Box<TermsArguments>,
        /// Shared policy group of the same tenant to nest it in, or 'none'
        #[arg(long, value_name = "POLICY_GROUP|none")]
        parent: Option<String>,
        /// Current sharing; any other value is refused, because sharing never changes
        #[arg(long, value_name = "true|false", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
        is_shared: Option<bool>,
        /// Accept a floor that the pools of its volumes cannot meet; an alarm shows it
        #[arg(long)]
        force: bool,
    },
    /// Rename a policy group; its volumes stay bound
    #[command(after_help = "Example:\n  weir policy-group rename policy1 --new-name gold")]
    Rename {
        #[command(flatten)]
        name: PolicyGroupName,
        #[command(flatten)]
        tenant: TenantOption,
        /// New name
        #[arg(long, value_name = "NAME")]
        new_name: String,
    },
    /// Delete a policy group that no volume is bound to
    #[command(visible_alias = "remove", after_help = "Example:\n  weir policy-group delete policy1")]
    Delete {
        #[command(flatten)]
        name: PolicyGroupName,
        #[command(flatten)]
        tenant: TenantOption,
    },
}

/// Terms of an adaptive policy group; an absent option keeps its value.
#[derive(Clone, Copy, Debug, Args)]
pub struct AdaptiveArguments {
    /// Expected IOPS for each TB, for example 1000, 1000/TB or 1IOPS/GB
    #[arg(long, value_name = "RATE", value_parser = iops_per_tb, allow_hyphen_values = true)]
    pub expected_iops: Option<u64>,
    /// Peak IOPS for each TB
    #[arg(long, value_name = "RATE", value_parser = iops_per_tb, allow_hyphen_values = true)]
    pub peak_iops: Option<u64>,
    /// Size that the expected IOPS follow: allocated-space or used-space [default: allocated-space]
    #[arg(long, value_name = "SPACE", value_enum, ignore_case = true, hide_possible_values = true)]
    pub expected_iops_allocation: Option<Space>,
    /// Size that the peak follows: allocated-space or used-space [default: used-space]
    #[arg(long, value_name = "SPACE", value_enum, ignore_case = true, hide_possible_values = true)]
    pub peak_iops_allocation: Option<Space>,
    /// Minimum of the expected IOPS, however small the volume; 'none' for no minimum
    #[arg(long, value_name = "IOPS", value_parser = iops_or_none, allow_hyphen_values = true)]
    pub absolute_min_iops: Option<u64>,
    /// Ceiling in bytes for each of the IOPS: 8K, 16K, 32K, 64K (K is 1024 bytes), 4KiB, or ANY for none
    /// [default: ANY]
    #[arg(long, value_name = "SIZE|ANY", value_parser = block_size)]
    pub block_size: Option<u32>,
    /// Minimum of all ceilings, however small the volume; 'none' for no minimum
    #[arg(long, value_name = "IOPS", value_parser = iops_or_none, allow_hyphen_values = true)]
    pub ceiling_iops_min: Option<u64>,
    /// Maximum of all ceilings, however large the volume; 'none' for no maximum
    #[arg(long, value_name = "IOPS", value_parser = iops_or_none, allow_hyphen_values = true)]
    pub ceiling_iops_max: Option<u64>,
    /// Meaning of the peak: the ceiling, or a burst on credits earned below the expected IOPS [default:
    /// ceiling]
    #[arg(long, value_name = "ceiling|credits", value_enum, ignore_case = true, hide_possible_values = true)]
    pub peak_mode: Option<PeakMode>,
    /// With '--peak-mode credits', time that a full credit lasts at the peak, 1 to 3600 seconds [default: 60]
    #[arg(long, value_name = "N")]
    pub burst_seconds: Option<u32>,
}

/// Commands about adaptive policy groups.
#[derive(Debug, Subcommand)]
pub enum AdaptivePolicyGroupCommand {
    /// Create an adaptive policy group
    #[command(
        after_help = "Example:\n  weir adaptive-policy-group create -policy-group adaptive-policy2 -vserver svm01 -expected-IOPS 1000 -peak-IOPS 1500 -peak-IOPS-allocation allocated-space"
    )]
    Create {
        #[command(flatten)]
        name: PolicyGroupName,
        #[command(flatten)]
        tenant: TenantOption,
        #[command(flatten)]
        terms: Box<AdaptiveArguments>,
    },
    /// List adaptive policy groups, including the built-in ones
    #[command(after_help = "Example:\n  weir adaptive-policy-group list")]
    List {
        #[command(flatten)]
        tenant: TenantFilter,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show an adaptive policy group with all its fields, or list the policy groups
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir adaptive-policy-group show extreme")]
    Show {
        #[command(flatten)]
        name: OptionalPolicyGroupName,
        #[command(flatten)]
        tenant: TenantOfShown,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Change the terms of an adaptive policy group, also while its volumes are in use
    #[command(
        visible_alias = "update",
        after_help = "Example:\n  weir adaptive-policy-group modify adaptive-policy2 -peak-iops 2000/TB --peak-mode credits"
    )]
    Modify {
        #[command(flatten)]
        name: PolicyGroupName,
        #[command(flatten)]
        tenant: TenantOption,
        #[command(flatten)]
        terms: Box<AdaptiveArguments>,
    },
    /// Rename an adaptive policy group; its volumes stay bound
    #[command(after_help = "Example:\n  weir adaptive-policy-group rename adaptive-policy2 --new-name gold")]
    Rename {
        #[command(flatten)]
        name: PolicyGroupName,
        #[command(flatten)]
        tenant: TenantOption,
        /// New name
        #[arg(long, value_name = "NAME")]
        new_name: String,
    },
    /// Delete an adaptive policy group that no volume is bound to
    #[command(
        visible_alias = "remove",
        after_help = "Example:\n  weir adaptive-policy-group delete adaptive-policy2"
    )]
    Delete {
        #[command(flatten)]
        name: PolicyGroupName,
        #[command(flatten)]
        tenant: TenantOption,
    },
}

/// Reads the size of the unit that counts as one operation.
fn operation_size(text: &str) -> Result<OperationSize, String> {
    let error = || format!("'{text}' is not a request size such as 4KiB, 'curve' or 'any'");
    match text.to_ascii_lowercase().as_str() {
        "any" | "none" => Ok(OperationSize::Any),
        "curve" => Ok(OperationSize::Curve),
        number if number.bytes().all(|byte| byte.is_ascii_digit()) => Err(error()),
        _ => {
            let size = Size::parse(text, 0).map_err(|_| error())?;
            u32::try_from(size.0).map(OperationSize::Bytes).map_err(|_| error())
        }
    }
}

/// Reads charges, for example `discard=1,flush=0`.
fn charges(text: &str) -> Result<ChargesModify, String> {
    let error = || format!("'{text}' is not a list of charges such as discard=1,zeroes=1,flush=0");
    let mut charges = ChargesModify::default();
    for part in text.split(',') {
        let (kind, charge) = part.split_once('=').ok_or_else(error)?;
        let slot = match kind.trim().to_ascii_lowercase().as_str() {
            "discard" => &mut charges.discard,
            "zeroes" => &mut charges.zeroes,
            "flush" => &mut charges.flush,
            _ => return Err(error()),
        };
        let charge = charge.trim().parse().map_err(|_| error())?;
        if slot.replace(charge).is_some() {
            return Err(format!("'{text}' names '{}' twice", kind.trim()));
        }
    }
    Ok(charges)
}

fn iops_per_tb(text: &str) -> Result<u64, String> {
    parse_iops_per_tb(text)
        .ok_or_else(|| format!("'{text}' is not a rate per size such as 1000, 1000/TB or 1IOPS/GB"))
}

/// Reads a rate in operations per second; 0 for 'none'.
fn iops_or_none(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    if lower == "none" {
        return Ok(0);
    }
    let number = lower.strip_suffix("iops").unwrap_or(&lower).trim();
    number.parse().map_err(|_| format!("'{text}' is not a number of operations per second such as 75IOPS"))
}

/// Reads a block size in bytes; 0 for any.
fn block_size(text: &str) -> Result<u32, String> {
    parse_block_size(text).map(Option::unwrap_or_default).ok_or_else(|| {
        format!("'{text}' is not a block size; 4K, 8K, 16K, 32K, 64K, 4KiB and ANY are accepted")
    })
}
