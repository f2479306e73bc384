//! Block devices of the kernel's ublk driver, for attachments. A device has a mark that is made of its attachment.

use std::path::PathBuf;

use weir_attach::block_device;
use weir_engine_interface::{AttachedClient, ServedQueue};
use weir_reactor::ublk_device;
use weir_types::AttachmentId;

use super::offer::{DeviceTerms, HostError, Offer};

/// A new device. It has a number and a mark, and appears once it is completed.
pub fn offer(attachment: AttachmentId, terms: DeviceTerms) -> Result<Offer, HostError> {
    let number = ublk_device::add(mark(attachment), terms.size_bytes, terms.is_read_only)?;
    let client = client(number, terms).inspect_err(|_| _ = ublk_device::delete(number))?;
    let start = move || {
        ublk_device::start(number)?;
        Ok(ublk_device::path(number))
    };
    Ok(Offer { client, complete: Box::new(start) })
}

/// A device whose server has gone. `None` if it was never started.
pub fn offer_again(number: u32, terms: DeviceTerms) -> Result<Option<Offer>, HostError> {
    if !ublk_device::find(number)?.is_some_and(|found| found.is_started()) {
        return Ok(None);
    }
    ublk_device::begin_recovery(number)?;
    let client = client(number, terms)?;
    let size_bytes = terms.size_bytes;
    let go_on = move || -> Result<PathBuf, HostError> {
        ublk_device::end_recovery(number)?;
        // The volume may have grown without its device.
        if let Err(error) = ublk_device::resize(number, size_bytes) {
            tracing::warn!(%error, number, "a ublk device keeps its old size");
        }
        Ok(ublk_device::path(number))
    };
    Ok(Some(Offer { client, complete: Box::new(go_on) }))
}

fn client(number: u32, terms: DeviceTerms) -> Result<AttachedClient, HostError> {
    let DeviceTerms { size_bytes, is_read_only } = terms;
    let device = ublk_device::open_server(number)?;
    let served = ServedQueue { device, depth: ublk_device::DEPTH, size_bytes, is_read_only };
    Ok(AttachedClient::Queue(served))
}

/// The mark of a device, in text; `None` if there is no such device.
pub fn mark_of(number: u32) -> Result<Option<String>, HostError> {
    Ok(ublk_device::find(number)?.map(|found| in_text(found.mark)))
}

/// Lets a device be as large as its volume is now.
pub fn resize(number: u32, size_bytes: u64) -> Result<(), HostError> {
    match ublk_device::resize(number, size_bytes)? {
        true => Ok(()),
        false => Err("this kernel gives a ublk device its size once; detach and attach the volume".into()),
    }
}

/// Gives a device back that nobody uses. One with another mark is no error.
pub fn detach(number: u32, mark: &str) -> Result<(), HostError> {
    let Some(found) = ublk_device::find(number)?.filter(|found| in_text(found.mark) == mark) else {
        return Ok(());
    };
    if !found.is_started() {
        // An earlier detachment has stopped it.
        return Ok(ublk_device::delete(number)?);
    }
    let unused = block_device::open_unused(&ublk_device::path(number))?;
    ublk_device::stop(number)?;
    drop(unused);
    Ok(ublk_device::delete(number)?)
}

/// Ends the device of an attachment, if there is one. Whoever uses it gets errors.
pub fn end(attachment: AttachmentId) -> Result<(), HostError> {
    let mark = mark(attachment);
    // Other users' devices may not be examined.
    let is_own = |number: &u32| {
        ublk_device::find(*number).is_ok_and(|found| found.is_some_and(|found| found.mark == mark))
    };
    let ended = ublk_device::numbers().into_iter().filter(is_own).map(|number| {
        ublk_device::stop(number)?;
        ublk_device::delete(number)
    });
    Ok(ended.collect::<Result<(), _>>()?)
}

fn mark(attachment: AttachmentId) -> u64 {
    attachment.0.as_u64_pair().0
}

fn in_text(mark: u64) -> String {
    format!("{mark:016x}")
}
