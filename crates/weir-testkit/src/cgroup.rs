//! A cgroup of its own, in which tests and benches run programs.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A cgroup. Dropping it removes it, once its processes have ended.
pub struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// Creates a cgroup in the hierarchy that limits block devices: that of the controller `blkio`, or that of
    /// version 2.
    ///
    /// # Errors
    /// If no such hierarchy is mounted, or the caller may not create cgroups.
    pub fn create(name: &str) -> io::Result<Cgroup> {
        let hierarchy = hierarchy()?.ok_or_else(|| io::Error::other("no hierarchy of cgroups is mounted"))?;
        let folder = hierarchy.join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(Cgroup { folder })
    }

    /// Creates a cgroup below this one.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn below(&self, name: &OsStr) -> io::Result<Cgroup> {
        let folder = self.folder.join(name);
        fs::create_dir(&folder)?;
        Ok(Cgroup { folder })
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A command that runs a program in the cgroup.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg("echo $$ > \"$PLACE\" && exec \"$0\" \"$@\"").arg(program);
        command.env("PLACE", self.folder.join("cgroup.procs"));
        command
    }

    /// Takes a running program into the cgroup.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn take(&self, child: &Child) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), child.id().to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that was waited for has left.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Where the hierarchy that limits block devices is mounted, if it is.
///
/// # Errors
/// If the mounts cannot be read.
pub fn hierarchy() -> io::Result<Option<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let place_of = |is_wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            is_wanted(kind, options).then(|| PathBuf::from(place))
        })
    };
    let is_blkio =
        |kind: &str, options: &str| kind == "cgroup" && options.split(',').any(|one| one == "blkio");
    Ok(place_of(&is_blkio).or_else(|| place_of(&|kind, _| kind == "cgroup2")))
}
