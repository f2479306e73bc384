//! Specifications of volumes: options, and the same in a name, as in `size=10G,repl=3,name=vol`.

use std::collections::BTreeMap;

use weir_api_types::{FlushCoalescing, IoPriority, Volume, VolumeCreate, VolumeIoProfile};
use weir_attach::filesystem::FilesystemKind;
use weir_types::Name;
use weir_types::bounds::VOLUME_SIZE_GRANULE_BYTES;
use weir_types::emulation::parse_time;
use weir_types::units::Size;

/// Keys that a volume may have.
const KEYS: &str = "size, repl, io_priority (priority_io, cos), io_profile, flush_window, coalesce_fua, \
    allow_shared_failure_domain, template, policy_group, fs";

/// The flush window of a volume that names none, in nanoseconds.
const WINDOW_NS: u64 = 100_000_000;

/// A volume as it is asked for: its name in Weir, and how to create it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specification {
    /// Name of the volume in Weir.
    pub name: String,
    /// Size in bytes, if one was asked for.
    pub size_bytes: Option<u64>,
    /// Number of replicas, if one was asked for.
    pub replicas: Option<u8>,
    /// Class, if one was asked for.
    pub io_priority: Option<IoPriority>,
    /// I/O profile, if one was asked for.
    pub io_profile: Option<VolumeIoProfile>,
    /// Longest time from the answer to a flush to its begin in nanoseconds, if one was asked for.
    pub flush_window_ns: Option<u64>,
    /// Whether replicas may share a failure domain while flushes are answered early, if it was said.
    pub allow_shared_failure_domain: Option<bool>,
    /// Whether a request that is to be durable by itself counts as one without and a flush, if it was said.
    pub coalesce_fua: Option<bool>,
    /// Template, if one was asked for.
    pub template: Option<String>,
    /// Policy group, if one was asked for.
    pub policy_group: Option<String>,
    /// Filesystem.
    pub filesystem: FilesystemKind,
}

/// A specification that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecificationError {
    /// A key that no volume has.
    #[error("'{0}' is not an option of a volume; there are: {KEYS}")]
    UnknownKey(String),
    /// A key of Portworx that asks for something Weir does not do.
    #[error("option '{key}={value}' asks for something that is not supported")]
    Unsupported {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// A value that its key cannot have.
    #[error("option '{key}={value}' is not accepted: {why}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Why not.
        why: String,
    },
    /// Two values for one thing.
    #[error("option '{0}' is given twice")]
    Twice(String),
    /// Options in a name that does not say which volume is meant.
    #[error("the name '{0}' has options, and needs name=VOLUME among them")]
    NoName(String),
    /// A name that no volume has.
    #[error(transparent)]
    Name(#[from] weir_types::name::NameError),
    /// Neither a name nor options.
    #[error("'{0}' has no '=': a volume's name has no ',' and an option is KEY=VALUE")]
    NoOption(String),
}

/// The name in Weir of a volume with this name, which may have options.
///
/// # Errors
/// If the name has options, and none is the name.
pub fn name_of(name: &str) -> Result<String, SpecificationError> {
    Specification::read(name, &BTreeMap::new()).map(|specification| specification.name)
}

impl Specification {
    /// Reads a name, which may have options, and more options.
    ///
    /// # Errors
    /// If an option is not known, not supported, or given twice.
    pub fn read(name: &str, options: &BTreeMap<String, String>) -> Result<Specification, SpecificationError> {
        let mut all = in_name(name)?;
        let inline_name = all.remove("name");
        let plain_name = all.is_empty() && inline_name.is_none();
        let name = match inline_name {
            Some(name) => name,
            None if plain_name => name.to_owned(),
            None => return Err(SpecificationError::NoName(name.to_owned())),
        };
        for (key, value) in options {
            insert(&mut all, key, value)?;
        }
        let mut specification = Specification {
            name: checked(name)?,
            size_bytes: None,
            replicas: None,
            io_priority: None,
            io_profile: None,
            flush_window_ns: None,
            allow_shared_failure_domain: None,
            coalesce_fua: None,
            template: None,
            policy_group: None,
            filesystem: FilesystemKind::Ext4,
        };
        all.iter().try_for_each(|(key, value)| specification.set(key, value))?;
        Ok(specification)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecificationError> {
        let refused =
            |why: String| SpecificationError::Value { key: key.to_owned(), value: value.to_owned(), why };
        match key {
            "size" => {
                let size = Size::parse_rounded_up(value, VOLUME_SIZE_GRANULE_BYTES);
                self.size_bytes = Some(size.map_err(|error| refused(error.to_string()))?.0);
            }
            "repl" => {
                let replicas = value.parse().ok().filter(|replicas| (1..=3).contains(replicas));
                self.replicas = Some(replicas.ok_or_else(|| refused("1, 2 and 3 are".to_owned()))?);
            }
            "io_priority" => {
                self.io_priority =
                    Some(class(value).ok_or_else(|| refused("high, med and low are".to_owned()))?);
            }
            "io_profile" => self.io_profile = Some(profile(key, value)?),
            "flush_window" => {
                self.flush_window_ns = Some(parse_time(value).map_err(|error| refused(error.to_string()))?);
            }
            "allow_shared_failure_domain" => {
                self.allow_shared_failure_domain = Some(truth(value).map_err(refused)?);
            }
            "coalesce_fua" => self.coalesce_fua = Some(truth(value).map_err(refused)?),
            "template" => self.template = Some(value.to_owned()),
            "policy_group" => self.policy_group = Some(value.to_owned()),
            "fs" => self.filesystem = value.parse().map_err(refused)?,
            _ => check_default(key, value)?,
        }
        Ok(())
    }

    /// How flushes are answered before they are carried out, if something was asked for.
    pub fn flush_coalescing(&self) -> Option<FlushCoalescing> {
        let (allow_shared_failure_domain, coalesce_fua) =
            (self.allow_shared_failure_domain, self.coalesce_fua);
        let request =
            FlushCoalescing { allow_shared_failure_domain, coalesce_fua, ..FlushCoalescing::default() };
        request.with_window_ns(self.flush_window_ns).if_any()
    }

    /// The first key of the I/O profile in which a volume that exists differs from what is asked for.
    pub fn other_profile_key(&self, volume: &Volume) -> Option<&'static str> {
        let actual = volume.flush_coalescing.unwrap_or_default();
        let actual_window_ns =
            actual.window_seconds.map_or(WINDOW_NS, |seconds| (seconds * 1e9).round() as u64);
        let other = |asked: Option<bool>, actual: Option<bool>| {
            asked.is_some_and(|asked| asked != actual.unwrap_or(false))
        };
        let differs = [
            ("io_profile", self.io_profile.is_some_and(|profile| profile != volume.io_profile)),
            ("flush_window", self.flush_window_ns.is_some_and(|ns| ns != actual_window_ns)),
            (
                "allow_shared_failure_domain",
                other(self.allow_shared_failure_domain, actual.allow_shared_failure_domain),
            ),
            ("coalesce_fua", other(self.coalesce_fua, actual.coalesce_fua)),
        ];
        differs.into_iter().find_map(|(key, differs)| differs.then_some(key))
    }

    /// The request that creates the volume.
    pub fn request(&self, default_size_bytes: u64) -> VolumeCreate {
        VolumeCreate {
            name: self.name.clone(),
            size_bytes: self.size_bytes.unwrap_or(default_size_bytes),
            replicas: self.replicas,
            template: self.template.clone(),
            io_priority: self.io_priority,
            class_policy: None,
            io_profile: self.io_profile,
            flush_coalescing: self.flush_coalescing(),
            qos_policy_group: self.policy_group.clone(),
            drive: None,
            qos_adaptive_policy_group: None,
            force: false,
        }
    }
}

/// The options in a name: none if it is a plain one.
fn in_name(name: &str) -> Result<BTreeMap<String, String>, SpecificationError> {
    let mut all = BTreeMap::new();
    if !name.contains(['=', ',']) {
        return Ok(all);
    }
    for option in name.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        let (key, value) =
            option.split_once('=').ok_or_else(|| SpecificationError::NoOption(option.to_owned()))?;
        insert(&mut all, key, value)?;
    }
    Ok(all)
}

fn insert(all: &mut BTreeMap<String, String>, key: &str, value: &str) -> Result<(), SpecificationError> {
    let key = key.trim().to_ascii_lowercase();
    let key = match key.as_str() {
        "priority_io" | "cos" => "io_priority",
        "replicas" => "repl",
        "filesystem" | "fstype" | "csi.storage.k8s.io/fstype" => "fs",
        "qos_policy_group" => "policy_group",
        key => key,
    };
    match all.insert(key.to_owned(), value.trim().to_owned()) {
        None => Ok(()),
        Some(before) if before == value.trim() => Ok(()),
        Some(_) => Err(SpecificationError::Twice(key.to_owned())),
    }
}

/// The name of a volume, which is a file's name too.
fn checked(name: String) -> Result<String, SpecificationError> {
    Ok(Name::new(name)?.to_string())
}

fn class(value: &str) -> Option<IoPriority> {
    match value.to_ascii_lowercase().as_str() {
        "high" => Some(IoPriority::High),
        "med" | "medium" => Some(IoPriority::Medium),
        "low" => Some(IoPriority::Low),
        _ => None,
    }
}

/// The I/O profile of this name.
fn profile(key: &str, value: &str) -> Result<VolumeIoProfile, SpecificationError> {
    match value.to_ascii_lowercase().as_str() {
        "auto" => Ok(VolumeIoProfile::Auto),
        "none" => Ok(VolumeIoProfile::None),
        "journal" => Ok(VolumeIoProfile::Journal),
        "db_remote" => Ok(VolumeIoProfile::DbRemote),
        _ => Err(SpecificationError::Unsupported { key: key.to_owned(), value: value.to_owned() }),
    }
}

fn truth(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" => Ok(true),
        "false" | "no" => Ok(false),
        _ => Err("true and false are".to_owned()),
    }
}

/// Accepts a key of Portworx with the value that changes nothing.
fn check_default(key: &str, value: &str) -> Result<(), SpecificationError> {
    let is_default = match key {
        "shared" | "sharedv4" | "secure" | "sticky" | "nodiscard" => matches!(value, "false" | "no" | "0"),
        "aggregation_level" => matches!(value, "1" | "auto"),
        // A journal on request is an I/O profile.
        "journal" => matches!(value, "false" | "no"),
        "nodes" | "group" | "zones" | "racks" | "label" | "labels" => false,
        _ => return Err(SpecificationError::UnknownKey(key.to_owned())),
    };
    let unsupported = || SpecificationError::Unsupported { key: key.to_owned(), value: value.to_owned() };
    is_default.then_some(()).ok_or_else(unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, options: &[(&str, &str)]) -> Result<Specification, SpecificationError> {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Specification::read(name, &options.collect())
    }

    #[test]
    fn plain_name_has_no_options() {
        let plain = read("test-high", &[]).unwrap();
        assert_eq!((plain.name.as_str(), plain.size_bytes, plain.replicas), ("test-high", None, None));
        assert_eq!(plain.filesystem, FilesystemKind::Ext4);
        assert_eq!(plain.request(1 << 30).size_bytes, 1 << 30);
    }

    #[test]
    fn name_and_options_say_the_same() {
        let inline = read("size=10G,repl=3,cos=med,io_profile=auto,fs=xfs,name=vol", &[]).unwrap();
        let options = [
            ("size", "10G"),
            ("replicas", "3"),
            ("io_priority", "medium"),
            ("io_profile", "auto"),
            ("fs", "xfs"),
        ];
        assert_eq!(inline, read("vol", &options).unwrap());
        assert_eq!(inline.name, "vol");
        assert_eq!(inline.replicas, Some(3));
        assert_eq!(name_of("name=vol,size=1").as_deref(), Ok("vol"));
        assert_eq!(
            read("size=10,name=vol", &[]).unwrap().size_bytes,
            Some(10 << 30),
            "a bare size is in GiB"
        );
        assert_eq!(read("size=10,name=vol", &[("size", "10")]).unwrap().size_bytes, Some(10 << 30));
    }

    #[test]
    fn options_of_flushes_are_in_the_request() {
        let options = [("io_profile", "db_remote"), ("flush_window", "50ms"), ("repl", "2")];
        let window = read("vol", &options).unwrap().request(1 << 30).flush_coalescing.unwrap();
        assert_eq!((window.window_seconds, window.allow_shared_failure_domain), (Some(0.05), None));
        let shared = read("vol", &[("allow_shared_failure_domain", "true"), ("coalesce_fua", "no")]).unwrap();
        assert_eq!(shared.flush_coalescing().unwrap().coalesce_fua, Some(false));
        assert_eq!(shared.flush_coalescing().unwrap().allow_shared_failure_domain, Some(true));
        assert_eq!(read("vol", &[]).unwrap().flush_coalescing(), None);
    }

    #[test]
    fn other_options_are_refused_in_words() {
        for (name, option, message) in [
            ("vol", ("colour", "red"), "'colour' is not an option of a volume; there are: size, repl"),
            ("vol", ("shared", "true"), "'shared=true' asks for something that is not supported"),
            ("vol", ("io_profile", "db"), "'io_profile=db' asks for something that is not supported"),
            ("vol", ("flush_window", "100"), "'flush_window=100' is not accepted: "),
            ("vol", ("allow_shared_failure_domain", "perhaps"), "true and false are"),
            ("vol", ("repl", "4"), "'repl=4' is not accepted: 1, 2 and 3 are"),
            ("vol", ("size", "many"), "'size=many' is not accepted"),
            ("vol", ("io_priority", "urgent"), "high, med and low are"),
            ("vol", ("fs", "vfat"), "ext4 and xfs are"),
            ("size=10G", ("repl", "1"), "needs name=VOLUME"),
            ("name=../etc", ("repl", "1"), "name '../etc'"),
            ("..", ("repl", "1"), "name '..'"),
            ("a,b", ("repl", "1"), "'a' has no '='"),
            ("size=1,name=vol", ("size", "2"), "'size' is given twice"),
        ] {
            let error = read(name, &[option]).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        assert!(read("vol", &[("shared", "false"), ("aggregation_level", "1")]).is_ok());
    }
}
