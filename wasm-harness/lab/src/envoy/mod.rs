//! A real Envoy as a child of this process.
//!
//! Invariants
//! - its configuration and log live in a folder of its own, removed when it is dropped;
//! - a thread that does nothing else starts it and waits for it: Envoy ends with the thread that
//!   started it, so it never outlives this process.

mod bootstrap;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;

use crate::client::{Call, Client, Protocol};

pub use bootstrap::{
    EnvoyOptions, PICK_HEADER, Routing, SERVED_HEADER, bootstrap, plugin_configuration,
};

/// How long Envoy may take until it is live: loading a plugin compiles it.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The admin port is chosen before Envoy binds it; somebody else may be faster.
const START_ATTEMPTS: u32 = 3;

/// A live gateway; dropping it ends it.
#[derive(Debug)]
pub struct Envoy {
    /// Where requests go.
    pub listener_addr: SocketAddr,
    /// The admin interface.
    pub admin_addr: SocketAddr,
    process: Process,
    folder: Folder,
    client: Client,
}

impl Envoy {
    /// Starts a gateway and waits until it is live.
    ///
    /// # Errors
    /// No Envoy found, a configuration that it refuses (with the end of its log), or no answer
    /// within half a minute.
    pub async fn start(options: &EnvoyOptions) -> anyhow::Result<Self> {
        Self::start_edited(options, |_| {}).await
    }

    /// [`Self::start`] with a change to the bootstrap.
    ///
    /// # Errors
    /// As there.
    pub async fn start_edited(
        options: &EnvoyOptions,
        edit: impl Fn(&mut Value),
    ) -> anyhow::Result<Self> {
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => find_binary()?,
        };
        let mut last = anyhow!("no attempt was made");
        for _ in 0..START_ATTEMPTS {
            let admin = free_port()?;
            let mut config = bootstrap(options, admin)?;
            edit(&mut config);
            match Self::attempt(&binary, options, &config, admin).await {
                Ok(envoy) => return Ok(envoy),
                Err(error) => {
                    let taken = format!("{error:#}").contains("Address already in use");
                    last = error;
                    if !taken {
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    async fn attempt(
        binary: &Path,
        options: &EnvoyOptions,
        config: &Value,
        admin_addr: SocketAddr,
    ) -> anyhow::Result<Self> {
        let folder = Folder::new()?;
        let config_path = folder.path.join("envoy.json");
        std::fs::write(&config_path, serde_json::to_vec_pretty(config)?)?;
        let mut command = Command::new(binary);
        command
            .arg("-c")
            .arg(&config_path)
            .args(["--concurrency", &options.concurrency.to_string()])
            .args(["--log-level", &options.log_level])
            .arg("--log-path")
            .arg(folder.path.join("envoy.log"))
            .args(["--disable-hot-restart", "--drain-time-s"])
            .arg(options.drain_time_s.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.path.join("stderr.log"))?);
        let process = Process::start(command)
            .with_context(|| format!("{} does not start", binary.display()))?;
        let mut envoy = Self {
            listener_addr: admin_addr,
            admin_addr,
            process,
            folder,
            client: Client::new(Protocol::Http1),
        };
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(listener) = envoy.live_listener().await {
                envoy.listener_addr = listener;
                return Ok(envoy);
            }
            if let Some(status) = envoy.process.ended() {
                bail!("Envoy ended with {status}:\n{}", envoy.log_tail());
            }
            ensure!(
                Instant::now() < deadline,
                "Envoy is not live after {START_TIMEOUT:?}:\n{}",
                envoy.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn live_listener(&self) -> Option<SocketAddr> {
        let ready = self.admin("/ready").await.ok()?;
        if ready.trim() != "LIVE" {
            return None;
        }
        let listeners = self.admin("/listeners?format=json").await.ok()?;
        let listeners: Value = serde_json::from_str(&listeners).ok()?;
        let address = listeners.pointer("/listener_statuses/0/local_address/socket_address")?;
        let port = u16::try_from(address.get("port_value")?.as_u64()?).ok()?;
        let ip = address.get("address")?.as_str()?.parse().ok()?;
        Some(SocketAddr::new(ip, port))
    }

    /// `host:port` of the listener.
    pub fn authority(&self) -> String {
        self.listener_addr.to_string()
    }

    /// The text of one admin page.
    ///
    /// # Errors
    /// It does not answer with 200.
    pub async fn admin(&self, path: &str) -> anyhow::Result<String> {
        let authority = self.admin_addr.to_string();
        let answer = self.client.send(&authority, &Call::get(path)).await?;
        ensure!(answer.status == 200, "{path} answers {}", answer.status);
        Ok(answer.text())
    }

    /// All counters and gauges by name.
    ///
    /// # Errors
    /// The admin interface does not answer.
    pub async fn stats(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let text = self.admin("/stats").await?;
        Ok(text
            .lines()
            .filter_map(|line| {
                let (name, value) = line.split_once(": ")?;
                Some((name.to_owned(), value.parse().ok()?))
            })
            .collect())
    }

    /// What Envoy has logged so far.
    pub fn log(&self) -> String {
        let read = |name| std::fs::read(self.folder.path.join(name)).unwrap_or_default();
        let both = [read("stderr.log"), read("envoy.log")].concat();
        String::from_utf8_lossy(&both).into_owned()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        // What ended it stands first in a message that may go on with the whole bootstrap.
        let is_serious = |line: &&str| line.contains("[error]") || line.contains("[critical]");
        let serious = lines.iter().position(is_serious);
        let from = serious.unwrap_or(lines.len().saturating_sub(12));
        let tail = lines.get(from..lines.len().min(from + 12));
        tail.unwrap_or_default().join("\n")
    }
}

/// Asks `envoy --mode validate` about a bootstrap.
///
/// # Errors
/// Envoy's own words, when it refuses.
pub fn validate(binary: &Path, config: &Value) -> anyhow::Result<()> {
    let folder = Folder::new()?;
    let path = folder.path.join("envoy.json");
    std::fs::write(&path, config.to_string())?;
    let output = Command::new(binary)
        .args(["--mode", "validate", "-l", "error", "-c"])
        .arg(&path)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "Envoy refuses it: {said}");
    Ok(())
}

/// The Envoy to use: `ENVOY`, else the one that `make setup` put under `.envoy/` in the tree.
///
/// # Errors
/// There is none.
pub fn find_binary() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("ENVOY").filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "ENVOY={} is no file", path.display());
        return Ok(path);
    }
    let lib = crate::tree_root().join(".envoy/lib");
    let pythons = std::fs::read_dir(&lib).into_iter().flatten().flatten();
    pythons
        .map(|entry| entry.path().join("site-packages/envoy/_bin/envoy"))
        .find(|path| path.is_file())
        .with_context(|| {
            format!(
                "no Envoy under {}; run `make setup` or set ENVOY=",
                lib.display()
            )
        })
}

fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// A folder that goes with its owner.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> anyhow::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("warmroute-lab-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("{}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it lies in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The child and the thread that keeps it.
#[derive(Debug)]
struct Process {
    stop: Option<mpsc::Sender<()>>,
    ended: Mutex<mpsc::Receiver<ExitStatus>>,
    keeper: Option<JoinHandle<()>>,
}

impl Process {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let (started_tx, started) = mpsc::channel();
        let (ended_tx, ended) = mpsc::channel();
        let keeper = std::thread::spawn(move || {
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(error) => {
                    let _ = started_tx.send(Err(error));
                    return;
                }
            };
            let _ = started_tx.send(Ok(()));
            loop {
                let wait = stopped.recv_timeout(Duration::from_millis(50));
                if wait != Err(mpsc::RecvTimeoutError::Timeout) {
                    // It may have ended by itself, which is as good.
                    let _ = child.kill();
                    let _ = child.wait();
                    return;
                }
                if let Ok(Some(status)) = child.try_wait() {
                    let _ = ended_tx.send(status);
                    return;
                }
            }
        });
        started.recv()??;
        Ok(Self {
            stop: Some(stop),
            ended: Mutex::new(ended),
            keeper: Some(keeper),
        })
    }

    fn ended(&self) -> Option<ExitStatus> {
        self.ended.lock().ok()?.try_recv().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}
