//! Netlink: requests to the kernel's NBD client, in the numbers of `linux/nbd-netlink.h`.

use std::fmt::Debug;
use std::io;
use std::os::fd::RawFd;

use neli::ToBytes;
use neli::consts::nl::NlmF;
use neli::consts::socket::NlFamily;
use neli::err::RouterError;
use neli::genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, Nlattr, NlattrBuilder};
use neli::nl::NlPayload;
use neli::router::synchronous::NlRouter;
use neli::types::Buffer;
use neli::utils::Groups;
use neli::{Size, neli_enum};

/// Name of the family.
const FAMILY: &str = "nbd";
/// Its version.
const VERSION: u8 = 1;

/// What the client is asked to do.
#[neli_enum(serialized_type = "u8")]
pub enum Request {
    Connect = 1,
    Disconnect = 2,
    Reconfigure = 3,
}

impl neli::consts::genl::Cmd for Request {}

/// What a request says.
#[neli_enum(serialized_type = "u16")]
pub enum Attribute {
    Index = 1,
    SizeBytes = 2,
    BlockSizeBytes = 3,
    Timeout = 4,
    ServerFlags = 5,
    Sockets = 7,
    DeadConnectionTimeout = 8,
    Backend = 10,
}

impl neli::consts::genl::NlAttrType for Attribute {}

/// The list of connections: items with a descriptor each.
#[neli_enum(serialized_type = "u16")]
pub enum Nested {
    /// An item in the list, and the descriptor in an item.
    First = 1,
}

impl neli::consts::genl::NlAttrType for Nested {}

/// An attribute with its value.
pub type Encoded = Nlattr<Attribute, Buffer>;

/// An attribute with its value.
pub fn attribute(kind: Attribute, value: impl Size + ToBytes) -> Encoded {
    encoded(kind, value)
}

/// The connection of a request.
pub fn socket(descriptor: RawFd) -> Encoded {
    let descriptor = u32::try_from(descriptor).expect("an open descriptor is not negative");
    let item = encoded(Nested::First, Buffer::new()).nest(&encoded(Nested::First, descriptor));
    let list = item.and_then(|item| encoded(Attribute::Sockets, Buffer::new()).nest(&item));
    list.expect("a number has bytes")
}

fn encoded<T: Size>(kind: T, value: impl Size + ToBytes) -> Nlattr<T, Buffer> {
    let kind = AttrTypeBuilder::default().nla_type(kind).build().expect("the kind is set");
    let built = NlattrBuilder::default().nla_type(kind).nla_payload(value).build();
    built.expect("kind and value are set")
}

/// Sends a request, and waits until the kernel has carried it out. Returns the number of the device, if the answer has
/// it.
///
/// # Errors
/// The kernel's, or that there is no such family.
pub fn ask(request: Request, attributes: Vec<Encoded>) -> io::Result<Option<u32>> {
    let (router, _events) = NlRouter::connect(NlFamily::Generic, None, Groups::empty()).map_err(failed)?;
    let family = router.resolve_genl_family(FAMILY).map_err(failed)?;
    let message = GenlmsghdrBuilder::<Request, Attribute>::default();
    let message = message.cmd(request).version(VERSION).attrs(attributes.into_iter().collect());
    let message = message.build().map_err(io::Error::other)?;
    let answers = router.send::<u16, _, u16, Genlmsghdr<Request, Attribute>>(
        family,
        NlmF::ACK,
        NlPayload::Payload(message),
    );
    let mut index = None;
    for answer in answers.map_err(failed)? {
        if let NlPayload::Payload(found) = answer.map_err(failed)?.nl_payload() {
            let found = found.attrs().get_attr_handle().get_attr_payload_as::<u32>(Attribute::Index);
            index = found.ok().or(index);
        }
    }
    Ok(index)
}

/// The error of the kernel, if it is one.
fn failed<T: Debug, P: Debug>(error: RouterError<T, P>) -> io::Error {
    match error {
        RouterError::Nlmsgerr(refused) => io::Error::from_raw_os_error(-refused.error()),
        other => io::Error::other(format!("{other:?}")),
    }
}
