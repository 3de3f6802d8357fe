//! A real Redis for a test.

use std::ops::{Deref, DerefMut};
use std::process::Command;

use warmroute_server::Server;

pub struct Redis(Server);

impl Redis {
    /// Starts one with these arguments; `None` where this machine has none, which is said.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        let more: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let server = Server::start("redis-server", "redis-server", move |address| {
            let port = address.port().to_string();
            let mut all = vec!["--port", &port, "--bind", "127.0.0.1", "--daemonize", "no"];
            all.extend(["--save", "", "--appendonly", "no"]);
            all.extend(more.iter().map(String::as_str));
            all.into_iter().map(str::to_owned).collect()
        });
        server.map(Self)
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

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl DerefMut for Redis {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.0
    }
}
