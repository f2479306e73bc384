//! World of one page: a daemon, and a folder that stands for the root of the host.

use std::process::Command;

use crate::common::daemon::{Daemon, State, WEIR};
use crate::common::load::Load;
use crate::common::program::run;
use crate::common::wait_until;
use crate::documents::pages::{Page, Step};

/// Folders of the host on the pages. Each stands for the folder of the same name below the world's folder.
const FOLDERS: [&str; 6] = ["/srv/", "/etc/", "/root/", "/usr/bin/", "/run/weir-nbd/", "/mnt/"];
/// Folders on the pages that are the state folder here. The sockets lie there too.
const STATE_FOLDERS: [&str; 2] = ["/run/weir/", "/var/lib/weir/"];
/// Option on the pages that names the state folder. Every daemon here gets its own.
const STATE: &str = "--state /var/lib/weir";
/// Addresses on the pages. Here the daemon listens on a free port.
const ADDRESSES: [&str; 2] = ["127.0.0.1:9001", "127.0.0.1:10809"];
/// Options on the pages that name a group. Here it is the group of this process.
const GROUPS: [&str; 2] = ["-group kvm", "-group storage"];
/// Configuration file of every daemon. Journals take their space at once, so they are small here.
const CONFIGURATION: &str = "[storage]\njournal_size = \"64MiB\"\n";
/// Folder in which the commands run, like the folder of Weir's source on the pages.
const HERE: &str = "here";

/// World of a page.
pub struct World<'page> {
    page: &'page Page,
    state: State,
    daemon: Option<Daemon>,
    loads: Vec<Load>,
    /// Commands `export` so far. They hold for all later commands.
    exports: String,
    /// Words on the page, each with the words that replace it here.
    mapping: Vec<(String, String)>,
}

/// The mapping of a page before its daemon listens.
fn mapping(page: &Page, state: &State) -> Vec<(String, String)> {
    let words = page.replaced.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
    let group = format!("-group {}", rustix::process::getegid().as_raw());
    let groups = GROUPS.map(|option| (option.to_owned(), group.clone()));
    let path = |folder: &str| state.beside(&folder[1..]).display().to_string();
    let folders = FOLDERS.map(|folder| (folder.to_owned(), path(folder)));
    let own = format!("{}/", state.path().display());
    let states = STATE_FOLDERS.map(|folder| (folder.to_owned(), own.clone()));
    let devices = ("/dev/weir/".to_owned(), format!("{own}devices/"));
    let hierarchy = weir_testkit::cgroup::hierarchy().unwrap().unwrap_or_default();
    let cgroup = format!("{}/weir-e2e-{}-backup", hierarchy.display(), std::process::id());
    let cgroups = ("/sys/fs/cgroup/backup".to_owned(), cgroup);
    words.chain(groups).chain(folders).chain(states).chain([devices, cgroups]).collect()
}

impl World<'_> {
    /// Starts the daemon of a page.
    pub fn new(page: &Page) -> World<'_> {
        let state = State::new();
        for folder in ["etc", "root", "run/weir-nbd", "srv", "usr/bin", "here/target/release"] {
            std::fs::create_dir_all(state.beside(folder)).unwrap();
        }
        // The program is installed, and built in the folder of the source.
        for program in ["usr/bin/weir", "here/target/release/weir"] {
            std::os::unix::fs::symlink(WEIR, state.beside(program)).unwrap();
        }
        std::fs::write(state.beside("etc/weir.toml"), CONFIGURATION).unwrap();
        let mapping = mapping(page, &state);
        let mut world =
            World { page, state, daemon: None, loads: Vec::new(), exports: String::new(), mapping };
        world.serve("");
        world
    }

    /// Takes a step of a preparation.
    pub fn take(&mut self, step: &Step) {
        match step {
            Step::Run(command) => self.run(command),
            Step::Until(command, text) => {
                let printed = || run(&mut self.shell(command)).stdout;
                wait_until(&format!("{command} prints {text}"), || printed().contains(text));
            }
            Step::Load(volume) => {
                let socket = self.state.path().join("nbd.sock");
                self.loads.push(Load::start(&socket, volume, 0));
            }
        }
    }

    /// Runs a command of the page, which must succeed.
    pub fn run(&mut self, command: &str) {
        eprintln!("{}: {command}", self.page.name);
        match command.split_once(' ') {
            Some(("systemctl", "stop weir")) => self.stop(),
            Some(("systemctl", "start weir" | "restart weir")) => self.serve(""),
            Some(("weir", options)) if options.starts_with("serve ") && !options.contains("--check") => {
                self.serve(options.trim_start_matches("serve "));
            }
            Some(("export", _)) => self.exports.push_str(&format!("{}; ", self.mapped(command))),
            _ => self.run_in_shell(command),
        }
    }

    fn run_in_shell(&self, command: &str) {
        let ran = run(&mut self.shell(command));
        let page = self.page.name;
        assert!(ran.code == Some(0), "{page}.md: {command}: {}{}", ran.stdout, ran.stderr);
    }

    fn shell(&self, command: &str) -> Command {
        let script = format!("{}{}", self.exports, self.mapped(command));
        let folders = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{folders}", self.state.beside("usr/bin").display());
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &script]).current_dir(self.state.beside(HERE)).env("PATH", path);
        shell.env("WEIR_SERVER", format!("unix:{}/api.sock", self.state.path().display()));
        shell
    }

    /// The command with the paths, addresses and words of this world.
    fn mapped(&self, command: &str) -> String {
        self.mapping.iter().fold(command.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Starts a daemon with these options in place of the daemon that runs.
    fn serve(&mut self, options: &str) {
        self.stop();
        let free = |text: String, address: &str| text.replace(address, "127.0.0.1:0");
        let options = self.mapped(&ADDRESSES.into_iter().fold(options.to_owned(), free));
        let options = format!("{} --config {}", options.replace(STATE, ""), self.mapped("/etc/weir.toml"));
        let daemon = self.state.start(&options.split_whitespace().collect::<Vec<_>>());
        let api = daemon.ready_line.split([' ', ',']).find_map(|word| word.strip_prefix("http://"));
        self.mapping.extend(api.map(|api| (ADDRESSES[0].to_owned(), api.trim().to_owned())));
        self.daemon = Some(daemon);
    }

    fn stop(&mut self) {
        self.daemon.take().map(Daemon::stop);
    }

    /// Ends the daemon.
    pub fn end(mut self) {
        self.loads.drain(..).for_each(|load| _ = load.finish());
        self.stop();
    }
}
