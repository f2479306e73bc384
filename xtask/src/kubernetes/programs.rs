//! Programs of a Kubernetes cluster, built from their Go modules into a folder of the user's cache, once.
//!
//! `go install` refuses most of these modules, because their own lists of modules replace some. So each is built as a
//! dependency of an empty module that has the same replacements.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::world::tools;

/// Packages of one module.
struct Module {
    path: &'static str,
    version: &'static str,
    /// Names of the programs, and their packages below the module.
    programs: &'static [(&'static str, &'static str)],
}

/// Version of Kubernetes. Its parts have the version `0.` in place of `1.`.
const KUBERNETES: &str = "v1.37.2";
/// Variable of the linker in which Kubernetes keeps its version.
const VERSION_VARIABLE: &str = "k8s.io/component-base/version.gitVersion";

const MODULES: [Module; 8] = [
    Module {
        path: "k8s.io/kubernetes",
        version: KUBERNETES,
        programs: &[
            ("kube-apiserver", "/cmd/kube-apiserver"),
            ("kube-controller-manager", "/cmd/kube-controller-manager"),
            ("kube-scheduler", "/cmd/kube-scheduler"),
            ("kubelet", "/cmd/kubelet"),
            ("kubectl", "/cmd/kubectl"),
        ],
    },
    Module { path: "go.etcd.io/etcd/server/v3", version: "v3.7.3", programs: &[("etcd", "")] },
    Module {
        path: "github.com/containerd/containerd/v2",
        version: "v2.4.2",
        programs: &[
            ("containerd", "/cmd/containerd"),
            ("containerd-shim-runc-v2", "/cmd/containerd-shim-runc-v2"),
            ("ctr", "/cmd/ctr"),
        ],
    },
    Module {
        path: "github.com/kubernetes-csi/external-provisioner/v6",
        version: "v6.3.0",
        programs: &[("csi-provisioner", "/cmd/csi-provisioner")],
    },
    Module {
        path: "github.com/kubernetes-csi/external-attacher/v4",
        version: "v4.13.0",
        programs: &[("csi-attacher", "/cmd/csi-attacher")],
    },
    Module {
        path: "github.com/kubernetes-csi/external-resizer/v2",
        version: "v2.3.0",
        programs: &[("csi-resizer", "/cmd/csi-resizer")],
    },
    Module {
        path: "github.com/kubernetes-csi/external-snapshotter/v8",
        version: "v8.7.0",
        programs: &[
            ("csi-snapshotter", "/cmd/csi-snapshotter"),
            ("snapshot-controller", "/cmd/snapshot-controller"),
        ],
    },
    Module { path: "helm.sh/helm/v3", version: "v3.21.4", programs: &[("helm", "/cmd/helm")] },
];

/// Modules whose checksums the public database does not have. They are parts for another system, which are not built.
const UNVERIFIED: &str = "github.com/Microsoft/*";

/// Parts of a module that published lists of modules require with a placeholder, and the version that is meant.
const PLACEHOLDER: &str = "v0.0.0-00010101000000-000000000000";
const MEANT: (&str, &str) = ("github.com/go-openapi/swag", "v0.24.0");
const PARTS: [&str; 11] = [
    "cmdutils",
    "conv",
    "fileutils",
    "jsonname",
    "jsonutils",
    "loading",
    "mangling",
    "netutils",
    "stringutils",
    "typeutils",
    "yamlutils",
];

/// A module that no program uses, that other lists require, and that cannot be had: an empty one takes its place.
const EMPTY: &str = "perkeep.org";

/// Module that has the definitions of snapshots, and their folder in it.
const DEFINITIONS: (&str, &str) =
    ("github.com/kubernetes-csi/external-snapshotter/client/v8@v8.7.0", "config/crd");

/// The programs.
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Builds what is missing. The first time takes about as long as building a Linux kernel.
    pub fn build() -> Result<Programs> {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        let cache = cache.context("neither XDG_CACHE_HOME nor HOME is set")?;
        let programs = Programs { folder: cache.join("weir-kubernetes").join(KUBERNETES) };
        std::fs::create_dir_all(&programs.folder)?;
        for module in &MODULES {
            programs.build_module(module)?;
        }
        Ok(programs)
    }

    /// The path of a program.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The folder of all programs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder with the definitions of snapshots for the cluster.
    pub fn snapshot_definitions(&self) -> Result<PathBuf> {
        let (module, folder) = DEFINITIONS;
        let downloaded = self.downloaded(module)?;
        let place = downloaded["Dir"].as_str().context("go mod download names no folder")?;
        Ok(Path::new(place).join(folder))
    }

    fn build_module(&self, module: &Module) -> Result<()> {
        // The mark has the version: another one is built anew.
        let mark = self.folder.join(format!("{}.built", module.programs[0].0));
        if std::fs::read_to_string(&mark).is_ok_and(|version| version == module.version) {
            return Ok(());
        }
        println!("building {} {}", module.path, module.version);
        let work = self.folder.join("modules").join(module.programs[0].0);
        std::fs::create_dir_all(&work)?;
        std::fs::write(work.join("go.mod"), self.module_file(module)?)?;
        std::fs::create_dir_all(work.join("empty"))?;
        std::fs::write(work.join("empty/go.mod"), format!("module {EMPTY}\n"))?;
        for (name, package) in module.programs {
            let mut command = Command::new(tools::go());
            command.current_dir(&work).env("CGO_ENABLED", "0").env("GONOSUMDB", UNVERIFIED).args([
                "build",
                "-mod=mod",
                "-trimpath",
            ]);
            command.arg(format!("-ldflags=-s -w -X {VERSION_VARIABLE}={KUBERNETES}"));
            command.arg("-o").arg(self.path(name)).arg(format!("{}{package}", module.path));
            let status = command.status().context("cannot run go")?;
            ensure!(status.success(), "cannot build {name}: {status}");
        }
        std::fs::write(mark, module.version)?;
        Ok(())
    }

    /// The file of an empty module that depends on this one, and replaces modules as this one does.
    fn module_file(&self, module: &Module) -> Result<String> {
        let downloaded = self.downloaded(&format!("{}@{}", module.path, module.version))?;
        let list = downloaded["GoMod"].as_str().context("go mod download names no list of modules")?;
        let list = self.json(&["mod", "edit", "-json", list])?;
        let replacements = list["Replace"].as_array().into_iter().flatten().filter_map(replacement);
        let (path, version) = (module.path, module.version);
        let head = format!("module programs\n\nrequire {path} {version}\n\n");
        let (whole, meant) = MEANT;
        let meant = PARTS.map(|part| format!("{whole}/{part} {PLACEHOLDER} => {whole}/{part} {meant}"));
        let all = replacements.chain(meant).chain([format!("{EMPTY} => ./empty")]);
        Ok(head + &all.map(|line| format!("replace {line}\n")).collect::<String>())
    }

    fn downloaded(&self, module: &str) -> Result<Value> {
        self.json(&["mod", "download", "-json", module])
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let output = Command::new(tools::go()).args(arguments).current_dir(&self.folder).output();
        let output = output.context("cannot run go, which builds Kubernetes")?;
        if !output.status.success() {
            bail!("go {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// A line of the list of modules. Kubernetes has its parts in one tree; outside of it, they are modules with a version.
/// `None` if a module of the tree is published under its own name.
fn replacement(replace: &Value) -> Option<String> {
    let old = replace["Old"]["Path"].as_str()?;
    let new = replace["New"]["Path"].as_str()?;
    if new.starts_with("./staging/") {
        return Some(format!("{old} => {old} {}", KUBERNETES.replacen("v1.", "v0.", 1)));
    }
    let version = replace["New"]["Version"].as_str()?;
    Some(format!("{old} => {new} {version}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_of_kubernetes_are_modules_with_a_version() {
        let staged = json!({"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}});
        assert_eq!(replacement(&staged).unwrap(), "k8s.io/api => k8s.io/api v0.37.2");
        let other = json!({"Old": {"Path": "a"}, "New": {"Path": "b", "Version": "v1.2.3"}});
        assert_eq!(replacement(&other).unwrap(), "a => b v1.2.3");
        let own = json!({"Old": {"Path": "c"}, "New": {"Path": "./client"}});
        assert_eq!(replacement(&own), None);
    }
}
