//! Access to the daemon: who reaches what through its API, its NBD sockets and its folders.
//!
//! * A name means an object of one tenant only.
//! * Clients that hold all connections, or never read their answers, leave the others served.
//! * Peers without administrative rights are refused.
//! * Folders that other users may write are refused.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::daemon::{Daemon, State, WEIR};
use crate::common::nbd::Client;
use crate::common::program::{PYTHON, Ran, find, has, is_root, run};
use crate::common::wait_until;
use serde_json::{Value, json};

/// User and group without any rights in the daemon.
const STRANGER: &str = "65534";
/// Two different API tokens.
const TOKENS: [&str; 2] = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];

/// Sends one request and reads the whole answer. Returns its status and text.
fn ask(mut stream: impl Read + Write, request: &str) -> (u16, String) {
    write!(stream, "{request}").unwrap();
    let mut answer = Vec::new();
    // A refused client may find the connection reset.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), answer)
}

/// Returns the head of a request without a body, in HTTP/1.0, whose answers are not chunked.
fn head(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n")
}

fn api_socket(daemon: &Daemon) -> PathBuf {
    daemon.state().path().join("api.sock")
}

fn connect_api(daemon: &Daemon) -> UnixStream {
    UnixStream::connect(api_socket(daemon)).unwrap()
}

/// Runs a program as another user with these supplementary groups.
fn as_stranger(groups: &str, program: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(find("setpriv").unwrap());
    let groups = if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") };
    command.args(["--reuid", STRANGER, "--regid", STRANGER, &groups]).arg(program).args(arguments);
    run(&mut command)
}

/// Returns the API's answer to a peer that the kernel reports as another user.
fn asked_by_stranger(daemon: &Daemon, groups: &str) -> String {
    let script = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        s.sendall(sys.argv[2].encode())\nprint(b''.join(iter(lambda: s.recv(65536), b'')).decode())\n";
    let socket = api_socket(daemon);
    let request = head("GET", "/v1/volumes", "");
    as_stranger(groups, Path::new(PYTHON), &["-c", script, socket.to_str().unwrap(), &request]).ok()
}

/// Lets other users reach the state folder, as in its usual location.
fn open_way(state: &State) {
    fs::set_permissions(state.beside(""), Permissions::from_mode(0o711)).unwrap();
}

fn write_token(path: &Path, token: &str, mode: u32) {
    fs::write(path, token).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Starts a daemon that also serves the API over TCP. Returns it with its token file and its address.
fn with_tcp(state: &State) -> (Daemon, PathBuf, String) {
    let file = state.beside("token");
    write_token(&file, TOKENS[0], 0o600);
    let daemon = state.start(&["--api-listen", "127.0.0.1:0", "--api-token-file", file.to_str().unwrap()]);
    let address = daemon.ready_line.split("http://").nth(1).unwrap();
    let address = address.split([',', '\n']).next().unwrap().to_owned();
    (daemon, file, address)
}

#[test]
fn repeated_delete_leaves_same_name_of_another_tenant() {
    let daemon = Daemon::fresh();
    daemon.ok(&["tenant", "create", "svm01"]);
    daemon.create("data", "1GiB");
    daemon.ok(&["volume", "create", "data", "--size", "1GiB", "--tenant", "svm01"]);
    daemon.ok(&["volume", "delete", "data"]);
    let message = daemon.refused(4, &["volume", "delete", "data"]);
    assert!(message.contains("unknown volume 'data' in tenant 'default'"), "{message}");
    assert!(message.contains("there is one in: svm01"), "{message}");
    assert_eq!(daemon.json(&["volume", "inspect", "data", "--tenant", "svm01"])["state"], "online");
    daemon.stop();
}

#[test]
fn command_without_tenant_never_reaches_another_tenant() {
    let daemon = Daemon::fresh();
    daemon.ok(&["tenant", "create", "svm01"]);
    daemon.ok(&["volume", "create", "data", "--size", "1GiB", "--tenant", "svm01"]);
    daemon.ok(&["qos", "policy-group", "create", "gold", "--tenant", "svm01", "--max-throughput", "9IOPS"]);
    daemon.ok(&["qos", "policy-group", "create", "own", "--max-throughput", "9IOPS"]);
    daemon.ok(&["snapshot", "create", "data@before", "--tenant", "svm01"]);
    for command in [
        "volume inspect data",
        "volume modify data --qos-policy-group own",
        "volume resize data --size 2GiB",
        "volume resize data --size 1MiB --force",
        "volume create clashing --size 1 --qos-policy-group gold",
        "volume delete data --force",
        "volume clone data twin",
        "snapshot create data@now",
        "snapshot restore data@before",
        "snapshot delete data@before",
        "scrub start data",
        "qos explain data",
        "qos policy-group show gold",
        "qos policy-group modify gold --max-throughput 1IOPS",
        "qos policy-group rename gold --new-name silver",
        "qos policy-group delete gold",
        "qos statistics volume performance show --volume data",
        "volume record data --output /dev/null --seconds 1",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let message = daemon.refused(4, &words);
        assert!(message.contains("in tenant 'default'"), "{command}: {message}");
    }
    daemon.stop();
}

#[test]
fn idle_api_connections_make_room_for_new_ones() {
    let daemon = Daemon::fresh();
    let idle: Vec<UnixStream> = (0..100).map(|_| connect_api(&daemon)).collect();
    assert_eq!(ask(connect_api(&daemon), &head("GET", "/v1/status", "")).0, 200);
    drop(idle);
    daemon.stop();
}

#[test]
fn idle_tcp_connections_do_not_block_local_socket() {
    let (daemon, _, address) = with_tcp(&State::new());
    let idle: Vec<TcpStream> = (0..70).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for _ in 0..3 {
        assert_eq!(ask(connect_api(&daemon), &head("GET", "/v1/status", "")).0, 200);
    }
    let authorized = format!("Authorization: Bearer {}\r\n", TOKENS[0]);
    let answer = ask(TcpStream::connect(&address).unwrap(), &head("GET", "/v1/status", &authorized));
    assert_eq!(answer.0, 200, "{}", answer.1);
    drop(idle);
    daemon.stop();
}

#[test]
fn api_request_with_endless_head_is_closed() {
    let daemon = Daemon::fresh();
    let mut slow = connect_api(&daemon);
    slow.write_all(b"GET /v1/status HTTP/1.1\r\nHost: local").unwrap();
    slow.read_to_end(&mut Vec::new()).unwrap();
    daemon.stop();
}

/// Creates volumes quickly, without one process per volume.
fn create_many(daemon: &Daemon, count: usize) {
    for number in 0..count {
        let body = format!("{{\"name\": \"v{number:04}\", \"size_bytes\": 4096}}");
        let headers = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        let (status, answer) =
            ask(connect_api(daemon), &(head("POST", "/v1/tenants/default/volumes", &headers) + &body));
        assert_eq!(status, 201, "{answer}");
    }
}

#[test]
fn api_clients_that_never_read_use_bounded_memory_and_are_dropped() {
    // Each answer in progress has a thread with a stack, pieces ahead of its client, and memory kept by the
    // allocator. The complete answers to all readers are 100 MiB of text.
    const MEMORY_BYTES_MAX: u64 = 96 << 20;
    const VOLUMES: usize = 1000;
    let daemon = Daemon::fresh();
    create_many(&daemon, VOLUMES);
    let listed = daemon.json(&["volume", "list"]);
    let names: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap()).collect();
    assert_eq!(names, (0..VOLUMES).map(|number| format!("v{number:04}")).collect::<Vec<_>>());
    let metrics = ask(connect_api(&daemon), &head("GET", "/metrics", "")).1;
    assert!(
        metrics.contains("volume=\"v0000\"")
            && metrics.contains("volume=\"v0999\"")
            && metrics.contains("# EOF")
    );
    let without_idle = ask(connect_api(&daemon), &head("GET", "/metrics?idle_volumes=false", "")).1;
    assert!(without_idle.contains("weir_drive_online") && !without_idle.contains("volume=\"v"));
    let before = daemon.resident_bytes();
    let deaf: Vec<UnixStream> = (0..60)
        .map(|number| {
            let mut stream = connect_api(&daemon);
            let path = ["/metrics", "/v1/volumes", "/v1/statistics/volumes"][number % 3];
            stream.write_all(head("GET", path, "").as_bytes()).unwrap();
            stream
        })
        .collect();
    let mut grown = 0;
    for _ in 0..40 {
        assert_eq!(ask(connect_api(&daemon), &head("GET", "/v1/status", "")).0, 200);
        grown = grown.max(daemon.resident_bytes().saturating_sub(before));
    }
    assert!(grown < MEMORY_BYTES_MAX, "{} MiB more are resident", grown >> 20);
    for mut stream in deaf {
        stream.set_nonblocking(true).unwrap();
        wait_until("a reader who reads nothing is dropped", || {
            stream.write(b"x").is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock)
        });
    }
    assert_eq!(daemon.json(&["volume", "list"])["items"].as_array().unwrap().len(), VOLUMES);
    daemon.stop();
}

#[test]
fn metrics_of_idle_volumes_can_be_omitted() {
    let state = State::new();
    let config = state.beside("weir.toml");
    fs::write(&config, "metrics_of_idle_volumes = false\n").unwrap();
    let daemon = state.start(&["--reactors", "1", "--config", config.to_str().unwrap()]);
    ["idle", "busy"].iter().for_each(|name| daemon.create(name, "1MiB"));
    let client = Client::attach(&daemon.nbd_socket(), "busy");
    let is_told = |path: &str, name: &str| daemon.get_text(path).contains(&format!("volume=\"{name}\""));
    // The handshake answers the client before a reactor has taken over the connection.
    wait_until("the attached volume is told", || is_told("/metrics", "busy"));
    assert!(!is_told("/metrics", "idle"));
    assert!(is_told("/metrics?idle_volumes=true", "idle"), "a scraper can ask for all");
    client.disconnect();
    daemon.stop();
}

/// The names of all volumes, and the largest page in bytes.
fn names_in_pages(daemon: &Daemon) -> (Vec<String>, usize) {
    let (mut names, mut page_bytes_max, mut token) = (Vec::new(), 0, String::new());
    loop {
        let (status, answer) = ask(connect_api(daemon), &head("GET", &format!("/v1/volumes?{token}"), ""));
        assert_eq!(status, 200, "{answer}");
        page_bytes_max = page_bytes_max.max(answer.len());
        let page: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let found = page["items"].as_array().unwrap().iter();
        names.extend(found.map(|volume| volume["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next_page_token"].as_str() else { return (names, page_bytes_max) };
        token = format!("page_token={next}");
    }
}

#[test]
fn long_list_pages_in_bounded_memory() {
    // A page has at most 500 volumes of about 2 KiB, once as objects and once as text.
    const MEMORY_BYTES_MAX: u64 = 16 << 20;
    // 'cargo xtask bench many' does the same with ten thousand.
    const VOLUMES: usize = 2000;
    let daemon = State::in_memory().start(&["--reactors", "1"]);
    create_many(&daemon, VOLUMES);
    // The first list allocates what all later ones use again.
    assert_eq!(names_in_pages(&daemon).0.len(), VOLUMES);
    let before = daemon.resident_bytes();
    let (names, page_bytes_max) = names_in_pages(&daemon);
    let grown = daemon.resident_bytes().saturating_sub(before);
    assert_eq!(names, (0..VOLUMES).map(|number| format!("v{number:04}")).collect::<Vec<_>>());
    assert!(page_bytes_max < 2 << 20, "a page has {page_bytes_max} bytes");
    assert!(grown < MEMORY_BYTES_MAX, "{} MiB more are resident", grown >> 20);
    daemon.stop();
}

/// Reads all pages of a list and returns their items.
fn all_pages(daemon: &Daemon, path: &str, size: usize) -> Vec<Value> {
    let (mut items, mut token) = (Vec::new(), String::new());
    loop {
        let page = daemon.get(&format!("{path}?page_size={size}{token}"));
        let found = page["items"].as_array().unwrap();
        assert!(found.len() <= size, "{path}: {} items", found.len());
        items.extend(found.iter().cloned());
        let Some(next) = page["next_page_token"].as_str() else { return items };
        token = format!("&page_token={next}");
    }
}

#[test]
fn lists_are_sent_in_pages() {
    let daemon = Daemon::fresh();
    daemon.ok(&["tenant", "create", "t"]);
    daemon.ok(&["qos", "policy-group", "create", "p", "--tenant", "t", "--max-throughput", "5IOPS"]);
    daemon.ok(&["volume", "create", "v", "--tenant", "t", "--size", "1MiB", "--qos-policy-group", "p"]);
    for path in ["/v1/volumes", "/v1/tenants", "/v1/policy-groups", "/v1/adaptive-policy-groups"] {
        let whole = daemon.get(path)["items"].clone();
        assert_eq!(json!(all_pages(&daemon, path, 1)), whole, "{path}");
        assert_eq!(json!(all_pages(&daemon, path, 1000)), whole, "{path}");
    }
    let tenants = daemon.json(&["tenant", "list"]);
    let counts: Vec<_> =
        tenants["items"].as_array().unwrap().iter().map(|t| (&t["name"], &t["volumes"])).collect();
    assert_eq!(json!(counts), json!([["default", 0], ["t", 1]]));
    let exported = daemon.ok(&["qos", "export"]);
    let file = daemon.state().beside("policies.yaml");
    fs::write(&file, &exported).unwrap();
    assert!(exported.contains("qos_policy_group: p") && exported.contains("version:"), "{exported}");
    daemon.ok(&["qos", "apply", file.to_str().unwrap()]);
    assert_eq!(daemon.ok(&["qos", "export"]), exported, "what was exported changes nothing");
    daemon.stop();
}

#[test]
fn folder_writable_by_others_is_refused_as_drive() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::fresh();
    let (folder, victim) = (daemon.state().beside("theirs"), daemon.state().beside("victim"));
    fs::create_dir(&folder).unwrap();
    fs::write(&victim, "precious").unwrap();
    let link = |name: &str| std::os::unix::fs::symlink(&victim, folder.join(name)).unwrap();
    ["weir-drive.new", "weir-measurement.scratch"].into_iter().for_each(link);
    let add = ["drive", "add", folder.to_str().unwrap(), "--no-measurement"];
    std::os::unix::fs::chown(&folder, Some(STRANGER.parse().unwrap()), None).unwrap();
    let message = daemon.refused(1, &add);
    assert!(message.contains("belongs to user 65534") && message.contains("chown root"), "{message}");
    std::os::unix::fs::chown(&folder, Some(0), None).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let message = daemon.refused(1, &add);
    assert!(message.contains("mode 0777") && message.contains("chmod go-w"), "{message}");
    // A link that was placed before the folder was made safe is not followed either.
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    link("weir-drive.json");
    daemon.refused(1, &add);
    fs::remove_file(folder.join("weir-drive.json")).unwrap();
    let volumes = folder.join("volumes");
    fs::create_dir(&volumes).unwrap();
    std::os::unix::fs::chown(&volumes, Some(STRANGER.parse().unwrap()), None).unwrap();
    assert!(daemon.refused(1, &add).contains("holds 'volumes'"));
    fs::remove_dir(&volumes).unwrap();
    daemon.ok(&["drive", "add", folder.to_str().unwrap(), "--name", "theirs"]);
    wait_until("the drive is measured", || {
        daemon.json(&["drive", "show", "theirs"])["measurement_progress"].is_null()
    });
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    daemon.stop();
}

#[test]
fn state_folder_writable_by_others_is_refused_with_remedy() {
    let state = State::new();
    fs::create_dir(state.path()).unwrap();
    fs::set_permissions(state.path(), Permissions::from_mode(0o777)).unwrap();
    let message = run(&mut state.serve(&[])).refused(1);
    assert!(message.contains("mode 0777") && message.contains("chmod go-w"), "{message}");
    fs::set_permissions(state.path(), Permissions::from_mode(0o755)).unwrap();
    state.start(&[]).stop();
}

#[test]
fn sockets_and_files_have_fixed_modes_under_any_umask() {
    let state = State::new();
    let command = format!("umask 0; exec '{WEIR}' serve --state '{}'", state.path().display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]);
    let daemon = Daemon::spawn(&state, shell).ready();
    daemon.create("data", "1MiB");
    let mode = |name: &str| fs::metadata(state.path().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("api.sock"), mode("nbd.sock"), mode("")), (0o600, 0o660, 0o700));
    assert_eq!((mode("catalogue.sqlite") & 0o077, mode("drive") & 0o077), (0, 0));
    daemon.stop();
    let daemon = state.start(&["--nbd-socket-mode", "606"]);
    assert_eq!(mode("nbd.sock"), 0o606);
    daemon.stop();
}

#[test]
fn api_is_for_the_admin_group_only() {
    if !is_root() || !has(&["setpriv"]) {
        return;
    }
    let state = State::new();
    let daemon = state.start(&[]);
    daemon.create("secret", "1MiB");
    open_way(&state);
    for (path, mode) in [(state.path(), 0o711), (api_socket(&daemon), 0o666)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let answer = asked_by_stranger(&daemon, "");
    assert!(
        answer.contains(" 403 Forbidden") && answer.contains("user 65534 may not administer"),
        "{answer}"
    );
    assert!(answer.contains("--admin-group") && !answer.contains("secret"), "{answer}");
    let daemon = daemon.stop().start(&["--admin-group", "4711"]);
    let metadata = fs::metadata(api_socket(&daemon)).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.gid()), (0o660, 4711));
    let answer = asked_by_stranger(&daemon, "4711");
    assert!(answer.contains(" 200 OK") && answer.contains("secret"), "{answer}");
    daemon.stop();
}

#[test]
fn api_over_tcp_needs_a_private_token() {
    let state = State::new();
    let message = run(&mut state.serve(&["--api-listen", "127.0.0.1:0"])).refused(1);
    assert!(message.contains("api_listen 127.0.0.1:0 needs a token") && message.contains("--api-token-file"));
    let exposed = state.beside("exposed");
    write_token(&exposed, TOKENS[0], 0o644);
    let options = ["--api-listen", "127.0.0.1:0", "--api-token-file", exposed.to_str().unwrap()];
    let message = run(&mut state.serve(&options)).refused(1);
    assert!(message.contains("mode 0644") && message.contains("chmod 600"), "{message}");
    let (daemon, file, address) = with_tcp(&state);
    let request =
        |headers: &str| ask(TcpStream::connect(&address).unwrap(), &head("GET", "/metrics", headers));
    let (status, answer) = request("");
    assert!(status == 401 && answer.contains("a token is missing") && !answer.contains("weir_"), "{answer}");
    assert_eq!(request(&format!("Authorization: Bearer {}\r\n", TOKENS[1])).0, 401);
    assert_eq!(request(&format!("Authorization: Bearer {}\r\n", TOKENS[0])).0, 200);
    let server = format!("http://{address}");
    let mut command = Command::new(WEIR);
    command.args(["status", "--server", &server, "--token-file", file.to_str().unwrap()]);
    run(&mut command).ok();
    let message = run(Command::new(WEIR).args(["status", "--server", &server])).refused(1);
    assert!(message.contains("--token-file"), "{message}");
    daemon.stop();
}

#[test]
fn change_from_a_web_page_is_refused() {
    let daemon = Daemon::fresh();
    daemon.create("data", "1MiB");
    let origin = "Origin: https://evil.example\r\n";
    for (method, path) in
        [("DELETE", "/v1/tenants/default/volumes/data"), ("POST", "/v1/tenants/default/volumes/data/scrub")]
    {
        let (status, answer) = ask(connect_api(&daemon), &head(method, path, origin));
        assert!(status == 403 && answer.contains("https://evil.example"), "{answer}");
    }
    assert_eq!(daemon.json(&["volume", "inspect", "data"])["state"], "online");
    daemon.stop();
}

#[test]
fn nbd_beyond_loopback_needs_the_insecure_flag() {
    let state = State::new();
    let listen = ["--nbd-listen", "tcp:0.0.0.0:0"];
    let message = run(&mut state.serve(&listen)).refused(1);
    assert!(
        message.contains("tcp:0.0.0.0:0 is not loopback") && message.contains("--insecure-nbd"),
        "{message}"
    );
    state.start(&[listen[0], listen[1], "--insecure-nbd"]).stop();
}

#[test]
fn extra_listeners_keep_the_socket_in_the_state_folder() {
    let state = State::new();
    let more = state.beside("more.sock");
    let daemon = state.start(&["--nbd-listen", &format!("unix:{}", more.display())]);
    daemon.create("data", "1MiB");
    for socket in [daemon.nbd_socket(), more.clone()] {
        assert_eq!(Client::attach(&socket, "data").read(0, 512).unwrap(), [0; 512]);
    }
    daemon.stop();
    assert!(!more.exists());
}

/// Starts a daemon on the default state folder, in a mount namespace of its own.
const SERVE_BY_DEFAULT: &str = "mount -t tmpfs none /run && mount -t tmpfs none /var/lib && mkdir /var/lib/weir && \
    mount --bind \"$0\" /var/lib/weir && exec \"$1\" serve --no-measurement --pool-full-percent=100";

#[test]
fn sockets_of_default_state_folder_are_in_run() {
    if !is_root() || !has(&["unshare"]) {
        return;
    }
    let state = State::new();
    fs::create_dir(state.path()).unwrap();
    let mut serve = Command::new(find("unshare").unwrap());
    serve.args(["--mount", "sh", "-c", SERVE_BY_DEFAULT]).arg(state.path()).arg(WEIR);
    let daemon = Daemon::spawn(&state, serve).ready();
    let folder = PathBuf::from(format!("/proc/{}/root/run/weir", daemon.process_id()));
    let server = format!("unix:{}", folder.join("api.sock").display());
    run(state.command(&["volume", "create", "data", "--size", "1MiB"]).env("WEIR_SERVER", server)).ok();
    assert_eq!(Client::attach(&folder.join("nbd.sock"), "data").read(0, 512).unwrap(), [0; 512]);
    for name in ["api.sock", "nbd.sock"] {
        let link = fs::read_link(state.path().join(name)).unwrap();
        assert_eq!(link, Path::new("/run/weir").join(name), "others find it where it always was");
    }
    daemon.stop();
}

#[test]
fn only_members_of_the_socket_group_attach() {
    if !is_root() || !has(&["setpriv", "nbdinfo", "qemu-io"]) {
        return;
    }
    let state = State::new();
    let daemon = state.start(&["--socket-group", "4711"]);
    daemon.create("data", "1MiB");
    open_way(&state);
    let nbdinfo = find("nbdinfo").unwrap();
    let attach = |groups: &str| as_stranger(groups, &nbdinfo, &["--size", &daemon.uri("data")]);
    assert_eq!(attach("4711").ok().trim(), "1048576");
    assert!(attach("").stderr.contains("Permission denied"));
    let qemu = find("qemu-io").unwrap();
    let write = |groups: &str| {
        as_stranger(groups, &qemu, &["-f", "raw", "-c", "write -P 7 0 4096", &daemon.uri("data")])
    };
    assert!(write("4711").ok().contains("wrote 4096/4096 bytes"));
    assert_eq!(Client::attach(&daemon.nbd_socket(), "data").read(0, 4096).unwrap(), [7; 4096]);
    assert!(write("").refused(1).contains("Permission denied"));
    daemon.stop();
}

#[test]
fn sighup_reloads_configuration_and_never_ends_daemon() {
    let (mut daemon, file, address) = with_tcp(&State::new());
    let request = |token: &str| {
        let header = format!("Authorization: Bearer {token}\r\n");
        ask(TcpStream::connect(&address).unwrap(), &head("GET", "/v1/status", &header)).0
    };
    let hang_up = |daemon: &Daemon| {
        let process = rustix::process::Pid::from_raw(daemon.process_id() as i32).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::HUP).unwrap();
    };
    write_token(&file, TOKENS[1], 0o600);
    hang_up(&daemon);
    wait_until("the new token counts", || request(TOKENS[1]) == 200);
    assert_eq!(request(TOKENS[0]), 401);
    // An unreadable configuration changes nothing.
    write_token(&file, "", 0o600);
    hang_up(&daemon);
    let log = || fs::read_to_string(daemon.state().beside("log")).unwrap();
    wait_until("the log says so", || log().contains("the configuration was not read again"));
    assert_eq!(request(TOKENS[1]), 200);
    assert!(daemon.is_alive());
    daemon.stop();
}

#[test]
fn check_reports_every_configuration_fault() {
    let state = State::new();
    let config = state.beside("weir.toml");
    let check = |text: &str, options: &[&str]| {
        fs::write(&config, text).unwrap();
        let options = [&["--check", "--config", config.to_str().unwrap()], options].concat();
        run(&mut state.serve(&options))
    };
    let said = check("zone = 'a'\n", &[]).ok();
    assert!(said.contains("the configuration is good"), "{said}");
    assert!(!state.path().exists(), "a check makes nothing");
    let wrong = "reactors = 0\nnbd_listen = ['tcp:0.0.0.0:1']\napi_listen = '10.0.0.1:80'\n\
        socket_group = 'no-such-group'\nnbd_socket_mode = '999'\n[storage]\njournal_size = '1KiB'\n";
    let said = check(wrong, &[]).refused(1);
    for words in [
        "0 reactors are not accepted",
        "tcp:0.0.0.0:1 is not loopback",
        "10.0.0.1:80 is not loopback",
        "api_listen 10.0.0.1:80 needs a token",
        "socket_group 'no-such-group'",
        "nbd_socket_mode '999' is not a mode",
        "storage.journal_size",
        "7 faults",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    assert!(check("zonne = 'a'\n", &[]).refused(1).contains("zonne"));
    let said = check("[storage]\ndevices = ['/nowhere/at/all']\n", &[]).refused(1);
    assert!(said.contains("/nowhere/at/all, which does not exist"), "{said}");
    assert!(check("", &["--nbd-listen", "here"]).refused(2).contains("'here' is not a place to listen"));
}
