//! Cgroups: groups of processes that Linux keeps in hierarchies (cgroups(7)).

use serde::{Deserialize, Serialize};

/// A cgroup: a place in one of the host's hierarchies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cgroup {
    /// The controllers of the hierarchy, as `/proc/PID/cgroup` names them; empty for that of version 2.
    pub controllers: String,
    /// Path from the root of the hierarchy. It begins with `/`.
    pub path: String,
}

impl Cgroup {
    /// Reads a line of `/proc/PID/cgroup`: `NUMBER:CONTROLLERS:PATH`.
    pub fn parse(line: &str) -> Option<Cgroup> {
        let mut fields = line.splitn(3, ':');
        let (_number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Cgroup { controllers: controllers.to_owned(), path: path.to_owned() })
    }

    /// True if the other cgroup is this one or below it.
    pub fn contains(&self, other: &Cgroup) -> bool {
        let below = other.path.strip_prefix(self.path.trim_end_matches('/'));
        self.controllers == other.controllers
            && below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(line: &str) -> Cgroup {
        Cgroup::parse(line).unwrap()
    }

    #[test]
    fn line_is_read_with_colons_in_its_path() {
        let found = cgroup("4:cpu,cpuacct:/a:b/c");
        assert_eq!((&*found.controllers, &*found.path), ("cpu,cpuacct", "/a:b/c"));
        assert_eq!(cgroup("0::/").controllers, "");
        assert_eq!(Cgroup::parse("4:cpu"), None);
    }

    #[test]
    fn cgroup_contains_itself_and_what_is_below() {
        let outer = cgroup("0::/a");
        for (line, is_inside) in
            [("0::/a", true), ("0::/a/b", true), ("0::/ab", false), ("0::/", false), ("1:blkio:/a", false)]
        {
            assert_eq!(outer.contains(&cgroup(line)), is_inside, "{line}");
        }
        assert!(cgroup("0::/").contains(&outer) && cgroup("0::/").contains(&cgroup("0::/")));
    }
}
