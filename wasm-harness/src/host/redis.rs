//! A real Redis behind the Redis calls: one connection a VM and cluster, made when it is needed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What a VM prepared for one cluster, and its connection.
pub(super) struct RedisClient {
    pub(super) cluster: String,
    user: String,
    password: String,
    timeout: Duration,
    connection: Option<BufReader<TcpStream>>,
}

impl RedisClient {
    pub(super) fn new(cluster: String, user: String, password: String, timeout_ms: u32) -> Self {
        Self {
            cluster,
            user,
            password,
            timeout: Duration::from_millis(u64::from(timeout_ms.max(1))),
            connection: None,
        }
    }

    /// Sends a query and waits for its reply; after a failure the next query connects anew.
    pub(super) fn ask(&mut self, address: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect(address)?,
        };
        connection.get_mut().write_all(query)?;
        let mut reply = Vec::new();
        read_reply(&mut connection, &mut reply)?;
        self.connection = Some(connection);
        Ok(reply)
    }

    /// A refused password shows in the replies to later queries, as on the real gateway.
    fn connect(&self, address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect_timeout(&address, self.timeout)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        stream.set_nodelay(true)?;
        let mut connection = BufReader::new(stream);
        let mut parts = vec!["AUTH", &self.user, &self.password];
        parts.retain(|part| !part.is_empty());
        if parts.len() > 1 {
            let mut auth = format!("*{}\r\n", parts.len());
            for part in parts {
                auth.push_str(&format!("${}\r\n{part}\r\n", part.len()));
            }
            connection.get_mut().write_all(auth.as_bytes())?;
            read_reply(&mut connection, &mut Vec::new())?;
        }
        Ok(connection)
    }
}

/// Adds one reply in RESP to `out`, as it stands on the wire.
fn read_reply(from: &mut impl BufRead, out: &mut Vec<u8>) -> io::Result<()> {
    let mut open = 1_usize;
    while open > 0 {
        open -= 1;
        let at = out.len();
        if from.read_until(b'\n', out)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&out[at..]).into_owned();
        let number: i64 = line
            .get(1..)
            .unwrap_or_default()
            .trim()
            .parse()
            .unwrap_or(0);
        match line.as_bytes().first() {
            Some(b'*') => open += usize::try_from(number).unwrap_or(0),
            Some(b'$') if number >= 0 => {
                from.take(number.unsigned_abs() + 2).read_to_end(out)?;
            }
            _ => {}
        }
    }
    Ok(())
}
