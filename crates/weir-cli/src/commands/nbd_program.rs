//! `weir attach --print-command`: how programs that speak NBD open a volume.

use weir_api_types::{Status, Volume};

use super::super::arguments::NbdProgram;
use super::super::client::{Client, of_tenant};
use super::super::errors::CommandError;

/// Seconds for which a virtual machine waits for a daemon that restarts.
const RECONNECT_SECONDS: u32 = 60;

/// Prints how a program opens a volume.
pub fn print(
    client: &Client,
    (tenant, name): (Option<&str>, &str),
    program: NbdProgram,
) -> Result<(), CommandError> {
    let volume: Volume = client.get(&of_tenant(tenant, "volumes", Some(name)), &[])?;
    let status: Status = client.get("/v1/status", &[])?;
    let socket = status.nbd_listeners.iter().find_map(|listener| listener.strip_prefix("unix:"));
    let socket = socket.ok_or_else(|| CommandError::Failed("the daemon has no socket for NBD".to_owned()))?;
    client.tell(&how(program, (&volume.export_name, volume.read_only), socket))
}

fn how(program: NbdProgram, (export, is_read_only): (&str, bool), socket: &str) -> String {
    // Programs refuse to open what they may not write.
    let only = |text: &'static str| if is_read_only { text } else { "" };
    let uri = format!("'nbd+unix:///{export}?socket={socket}'");
    match program {
        NbdProgram::Qemu => format!(
            "qemu-system-x86_64 -m 1G -device virtio-blk-pci,drive=d -blockdev driver=nbd,node-name=d,\
             export={export},discard=unmap,reconnect-delay={RECONNECT_SECONDS}{},server.type=unix,\
             server.path={socket}",
            only(",read-only=on")
        ),
        NbdProgram::Libvirt => format!(
            "<disk type='network' device='disk'>\n  <driver name='qemu' type='raw' discard='unmap'/>\n  \
             <source protocol='nbd' name='{export}'>\n    <host transport='unix' socket='{socket}'/>\n    \
             <reconnect delay='{RECONNECT_SECONDS}'/>\n  </source>\n  <target dev='vdb' bus='virtio'/>\n{}</disk>",
            only("  <readonly/>\n")
        ),
        NbdProgram::NbdClient => {
            let read_only = only("-readonly ");
            format!("nbd-client -unix {socket} -N {export} {read_only}-connections 2 -timeout 0 /dev/nbd0")
        }
        NbdProgram::Nbdfuse => format!("nbdfuse {}{}.img {uri}", only("--readonly "), file_name(export)),
        NbdProgram::Nbdcopy => format!("nbdcopy {uri} {}.img", file_name(export)),
        NbdProgram::QemuImg => format!("qemu-img convert -O qcow2 {uri} {}.qcow2", file_name(export)),
    }
}

/// The name of a volume, without its tenant.
fn file_name(export: &str) -> &str {
    export.rsplit('/').next().unwrap_or(export)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_gets_the_export_and_the_socket() {
        for program in [
            NbdProgram::Qemu,
            NbdProgram::Libvirt,
            NbdProgram::NbdClient,
            NbdProgram::Nbdfuse,
            NbdProgram::Nbdcopy,
            NbdProgram::QemuImg,
        ] {
            let how = how(program, ("svm01/vol1", true), "/run/weir/nbd.sock");
            assert!(how.contains("svm01/vol1") && how.contains("/run/weir/nbd.sock"), "{how}");
        }
        assert_eq!(
            how(NbdProgram::Nbdfuse, ("svm01/vol1", false), "/s"),
            "nbdfuse vol1.img 'nbd+unix:///svm01/vol1?socket=/s'"
        );
    }
}
