//! A real server for a test, such as a store for replicas: on a port and in a folder of its own, killed with
//! its owner.
//!
//! Invariant: it starts empty, every time.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Tries to get a port that nobody else takes meanwhile.
const TRIES: usize = 5;
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);

type Arguments = Box<dyn Fn(SocketAddr) -> Vec<String> + Send + Sync>;

/// A server, running or killed.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    program: &'static str,
    arguments: Arguments,
    folder: PathBuf,
    child: Option<Child>,
}

impl Server {
    /// Starts a program of a Debian package, with the arguments for where it has to listen; `None` where this
    /// machine has none, which is said.
    ///
    /// # Panics
    /// It is there and does not start.
    pub fn start(
        program: &'static str,
        package: &str,
        arguments: impl Fn(SocketAddr) -> Vec<String> + Send + Sync + 'static,
    ) -> Option<Self> {
        if Command::new(program).arg("--version").output().is_err() {
            // Past the test runner, which swallows what a passing test prints.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: no {program} on this machine (make setup as root, or: apt-get install {package})"
            );
            return None;
        }
        let folder = format!("warmroute-{program}-{}", std::process::id());
        let mut server = Self {
            address: free_address(),
            program,
            arguments: Box::new(arguments),
            folder: std::env::temp_dir().join(folder),
            child: None,
        };
        for _ in 0..TRIES {
            server.address = free_address();
            let port = server.address.port().to_string();
            server.folder.set_extension(port);
            if server.launch() {
                return Some(server);
            }
        }
        panic!("{program} does not start");
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    /// Starts it again where it was, empty.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&mut self) {
        assert!(self.launch(), "{} does not start again", self.program);
    }

    /// Starts it and waits until it listens; `false` when it ended instead.
    fn launch(&mut self) -> bool {
        self.kill();
        std::fs::create_dir_all(&self.folder).expect("a folder for a server");
        let child = Command::new(self.program)
            .args((self.arguments)(self.address))
            .current_dir(&self.folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = child.ok();
        let until = Instant::now() + PATIENCE;
        while let Some(child) = &mut self.child
            && Instant::now() < until
        {
            match child.try_wait() {
                Ok(None) if TcpStream::connect(self.address).is_ok() => return true,
                Ok(None) => std::thread::sleep(PAUSE),
                Ok(Some(_)) | Err(_) => break,
            }
        }
        self.kill();
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An address of this machine at which nobody listens now.
///
/// # Panics
/// No port is free.
#[must_use]
pub fn free_address() -> SocketAddr {
    let free = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    free.local_addr().expect("a bound socket has an address")
}
