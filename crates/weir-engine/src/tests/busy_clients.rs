//! Busy clients: however many requests they send, others of the reactor have their turn.

use weir_engine_interface::ServedFile;

use super::*;

/// Rounds within which a busy reactor has to take a command. A daemon that stops gives its clients seconds, and a round of
/// refused requests takes far less than a millisecond.
const ROUNDS_MAX: usize = 100;

/// A client whose socket always has another request, none of which needs a drive.
struct BusyClient {
    socket: UnixStream,
    /// Bytes of refused requests that were sent.
    sent: usize,
}

impl BusyClient {
    fn turn(&mut self) {
        let refused = request(READ, 2 * EXTENT_BYTES, 4096);
        let many = refused.repeat(1024);
        let from = self.sent % refused.len();
        self.sent += self.socket.write(&many[from..]).unwrap_or_else(|error| {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            0
        });
        while self.socket.read(&mut [0; 1 << 16]).is_ok_and(|count| count > 0) {}
    }
}

/// Rounds until a command is taken beside busy clients.
fn rounds_until_taken(clients: usize) -> Option<usize> {
    let mut world = World::new(1);
    let mut clients: Vec<BusyClient> =
        (0..clients).map(|_| BusyClient { socket: world.attach(), sent: 0 }).collect();
    let (done, answer) = sync_channel(1);
    let mut round = |world: &mut World| {
        clients.iter_mut().for_each(BusyClient::turn);
        world.reactor.begin_round();
        world.reactor.wait_unless_ended();
    };
    (0..10).for_each(|_| round(&mut world));
    world.post(Command::OpenFiles { drive: DriveId::from_bytes([0; 16]), done });
    (0..ROUNDS_MAX).find(|_| {
        round(&mut world);
        answer.try_recv().is_ok()
    })
}

/// A message of the kernel that is answered at once: it asks for the attributes of the root folder.
fn attributes_asked(unique: u64) -> Vec<u8> {
    const GETATTR: u32 = 3;
    const ROOT: u64 = 1;
    let (head_bytes, body_bytes) = (40, 16);
    let mut message = (head_bytes + body_bytes as u32).to_ne_bytes().to_vec();
    message.extend(GETATTR.to_ne_bytes());
    message.extend(unique.to_ne_bytes());
    message.extend(ROOT.to_ne_bytes());
    message.resize(head_bytes as usize + body_bytes, 0);
    message
}

#[test]
fn messages_of_a_busy_kernel_leave_others_their_turn() {
    const MESSAGES: u64 = 200;
    let mut world = World::new(1);
    let (kernel, device) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::NONBLOCK,
        None,
    )
    .unwrap();
    let served = ServedFile { device, size_bytes: EXTENT_BYTES, is_read_only: false, is_taken_over: false };
    let (done, answer) = sync_channel(1);
    let client = Box::new(AttachedClient::File(served));
    world.send(Command::ServeAttached { volume: VOLUME, client, done });
    assert_eq!(answer.try_recv(), Ok(true));
    for unique in 0..MESSAGES {
        let message = attributes_asked(unique);
        assert_eq!(rustix::io::write(&kernel, &message), Ok(message.len()), "the socket holds all messages");
    }
    let (mut replies, mut rounds) = (0, 0);
    world.turn_until("all messages are answered", |_| {
        rounds += 1;
        while rustix::io::read(&kernel, &mut [0; 4096]).is_ok() {
            replies += 1;
        }
        replies == MESSAGES
    });
    assert!(rounds > 2, "{MESSAGES} messages were taken in {rounds} rounds");
}

#[test]
fn command_is_taken_beside_busy_clients() {
    for clients in [1, 2, 40] {
        let rounds = rounds_until_taken(clients);
        assert!(
            rounds.is_some(),
            "{clients} clients keep the command from being taken for {ROUNDS_MAX} rounds"
        );
    }
}
