//! A real Redis for a test, on a port of its own, killed with its owner.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Tries to get a port that nobody else takes meanwhile.
const TRIES: usize = 5;
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Redis {
    child: Child,
    pub address: SocketAddr,
    arguments: Vec<String>,
}

impl Redis {
    /// Starts one with these arguments; `None` where this machine has none, which is said.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        let found = Command::new("redis-server").arg("--version").output();
        if found.is_err() {
            // Past the test runner, which swallows what a passing test prints.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: no redis-server on this machine (make setup as root, or: apt-get install redis-server)"
            );
            return None;
        }
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        for _ in 0..TRIES {
            let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            if let Some(child) = launch(address, &arguments) {
                return Some(Self {
                    child,
                    address,
                    arguments,
                });
            }
        }
        panic!("redis-server does not start");
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again where it was, empty.
    pub fn restart(&mut self) {
        self.child = launch(self.address, &self.arguments).expect("redis-server starts again");
    }

    /// What a client says to it.
    pub fn say(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["-p", &self.address.port().to_string()])
            .args(arguments)
            .output()
            .expect("redis-cli");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server and waits until it listens; `None` when it ended instead.
fn launch(address: SocketAddr, arguments: &[String]) -> Option<Child> {
    let port = address.port().to_string();
    let mut child = Command::new("redis-server")
        .args(["--port", &port, "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if child.try_wait().ok()?.is_some() {
            return None;
        }
        if TcpStream::connect(address).is_ok() {
            return Some(child);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    None
}
