//! Arguments of the commands about templates.

use clap::{Args, Subcommand, ValueEnum};

use super::ReadArguments;
use weir_api_types::{IoPriority, TemplateRead};
use weir_types::control_bounds::REPLICAS_MAX;

/// Commands about templates.
#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// Create a template
    #[command(
        after_help = "Example:\n  weir template create mixed --replicas high,low,low --read-from high\n  weir template create gold --replicas high,high --policy-group gold"
    )]
    Create {
        /// The template
        #[arg(value_name = "TEMPLATE")]
        name: String,
        /// Class of each replica, 1 to 3 of high, medium (or med) and low
        #[arg(long, value_name = "CLASS,...", value_parser = replica_classes)]
        replicas: ReplicaClasses,
        /// Class of the replicas that are read [default: fastest]
        #[arg(long, value_name = "CLASS|fastest", value_parser = read_from)]
        read_from: Option<TemplateRead>,
        /// Policy group, fixed or adaptive, for volumes created from the template; looked up in the tenant of
        /// the volume
        #[arg(long, value_name = "POLICY_GROUP", visible_alias = "qos-policy-group")]
        policy_group: Option<String>,
    },
    /// List templates, including the built-in ones
    #[command(after_help = "Example:\n  weir template list\n  weir template list -o json")]
    List(ReadArguments),
    /// Show a template with all its fields, or list the templates
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir template show hybrid")]
    Show {
        /// The template
        #[arg(value_name = "TEMPLATE")]
        name: Option<String>,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Change a template; the replicas of its volumes are moved while the volumes are in use
    #[command(
        visible_alias = "update",
        after_help = "Example:\n  weir template modify mixed --replicas high,high,low\n  weir template modify mixed --read-from fastest --policy-group none"
    )]
    Modify {
        /// The template
        #[arg(value_name = "TEMPLATE")]
        name: String,
        #[command(flatten)]
        changes: TemplateChanges,
    },
    /// Delete a template that no volume follows
    #[command(visible_alias = "remove", after_help = "Example:\n  weir template delete mixed")]
    Delete {
        /// The template
        #[arg(value_name = "TEMPLATE")]
        name: String,
    },
}

/// The changes; at least one is required.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct TemplateChanges {
    /// Class of each replica, 1 to 3 of high, medium (or med) and low
    #[arg(long, value_name = "CLASS,...", value_parser = replica_classes)]
    pub replicas: Option<ReplicaClasses>,
    /// Class of the replicas that are read, or 'fastest'
    #[arg(long, value_name = "CLASS|fastest", value_parser = read_from)]
    pub read_from: Option<TemplateRead>,
    /// Policy group for volumes created later, or 'none'
    #[arg(long, value_name = "POLICY_GROUP|none", visible_alias = "qos-policy-group")]
    pub policy_group: Option<String>,
}

/// Class of each replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaClasses(pub Vec<IoPriority>);

fn class(text: &str) -> Result<IoPriority, String> {
    IoPriority::from_str(text, true)
        .map_err(|_| format!("'{text}' is no class; high, medium (or med) and low are accepted"))
}

/// Reads the class of each replica.
fn replica_classes(text: &str) -> Result<ReplicaClasses, String> {
    let classes: Vec<IoPriority> =
        text.split(',').map(|word| class(word.trim())).collect::<Result<_, _>>()?;
    if classes.len() > usize::from(REPLICAS_MAX) {
        return Err(format!(
            "'{text}' are {} replicas; 1 to {REPLICAS_MAX} classes are accepted, such as high,low,low",
            classes.len()
        ));
    }
    Ok(ReplicaClasses(classes))
}

/// Reads the class of the replicas that are read.
fn read_from(text: &str) -> Result<TemplateRead, String> {
    if text.trim().eq_ignore_ascii_case("fastest") {
        return Ok(TemplateRead::Fastest);
    }
    match class(text.trim()) {
        Ok(priority) => Ok(TemplateRead::from(Some(priority.into()))),
        Err(error) => Err(format!("{error}, and 'fastest'")),
    }
}
