//! What one VM publishes of its endpoints for the others of its process, as bytes.
//!
//! ```text
//! version u8 | count u16 | endpoint x count
//! endpoint: address length u8, address | health u8 | role u8 | read_at u64 | present u16 | present figures
//! ```
//! Numbers are little-endian. `present` has one bit a figure, in the order of [`encode`]; adapters are
//! max u32, two list lengths u8, and eight bytes a name. About 75 bytes an endpoint beside address and
//! adapters.
//!
//! Two versions of the plugin run side by side while one replaces the other: bytes of another version
//! are refused as a whole. Any bytes are safe to decode: every length is checked, nothing is allocated
//! that the bytes do not pay for.

use crate::clock::Millis;
use crate::endpoints::MAX_ENDPOINTS;
use crate::endpoints::load::{Adapters, Engine, Health, Load, MAX_ADAPTERS};
use crate::endpoints::role::Role;

/// Version of the layout.
pub const VERSION: u8 = 2;

/// One endpoint's published state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointSnapshot {
    /// Its address, at most 255 bytes.
    pub address: String,
    /// Its health, where known.
    pub health: Option<Health>,
    /// What it does of a request, where that is told by name.
    pub role: Option<Role>,
    /// Its engine's figures.
    pub load: Load,
    /// When they were read.
    pub read_at: Millis,
}

/// Why bytes are no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Another version of the plugin wrote it: ignore it.
    #[error("snapshot of layout version {0}, this plugin reads version {VERSION}")]
    Version(u8),
    /// It is cut, too long, or holds what no encoder writes.
    #[error("snapshot bytes are corrupt")]
    Corrupt,
}

/// Writes endpoints. Those past [`MAX_ENDPOINTS`] and those whose address is over 255 bytes are left out.
#[must_use]
pub fn encode(endpoints: &[EndpointSnapshot]) -> Vec<u8> {
    let fits = |endpoint: &&EndpointSnapshot| endpoint.address.len() <= usize::from(u8::MAX);
    let endpoints = || endpoints.iter().filter(fits).take(MAX_ENDPOINTS);
    let count = u16::try_from(endpoints().count()).unwrap_or_default();
    let mut out = Vec::with_capacity(usize::from(count).saturating_mul(112).saturating_add(3));
    out.push(VERSION);
    out.extend_from_slice(&count.to_le_bytes());
    for endpoint in endpoints() {
        let len = u8::try_from(endpoint.address.len()).unwrap_or_default();
        out.push(len);
        out.extend_from_slice(endpoint.address.as_bytes());
        out.push(endpoint.health.map_or(0, |health| health as u8));
        out.push(endpoint.role.map_or(0, |role| {
            1 | u8::from(role.decodes) << 1 | u8::from(role.prefills) << 2
        }));
        out.extend_from_slice(&endpoint.read_at.0.to_le_bytes());
        encode_load(&endpoint.load, &mut out);
    }
    out
}

fn encode_load(load: &Load, out: &mut Vec<u8>) {
    let present_at = out.len();
    out.extend_from_slice(&[0; 2]);
    let mut present = 0_u16;
    let mut bit = 1_u16;
    let mut figure = |bytes: Option<&[u8]>| {
        if let Some(bytes) = bytes {
            present |= bit;
            out.extend_from_slice(bytes);
        }
        bit = bit.wrapping_shl(1);
    };
    figure(
        load.engine
            .map(|engine| [engine as u8])
            .as_ref()
            .map(<[u8; 1]>::as_slice),
    );
    for gauge in [load.waiting, load.running, load.kv_use, load.cache_hit_rate] {
        figure(
            gauge
                .map(f32::to_le_bytes)
                .as_ref()
                .map(<[u8; 4]>::as_slice),
        );
    }
    figure(
        load.capacity_tokens
            .map(u64::to_le_bytes)
            .as_ref()
            .map(<[u8; 8]>::as_slice),
    );
    figure(
        load.block_tokens
            .map(u32::to_le_bytes)
            .as_ref()
            .map(<[u8; 4]>::as_slice),
    );
    for counter in [
        load.prefix_queries,
        load.prefix_hits,
        load.external_prefix_queries,
        load.external_prefix_hits,
    ] {
        figure(
            counter
                .map(f64::to_le_bytes)
                .as_ref()
                .map(<[u8; 8]>::as_slice),
        );
    }
    let adapters = load.adapters.as_ref().map(encode_adapters);
    figure(adapters.as_deref());
    if let Some(place) = out.get_mut(present_at..).and_then(<[u8]>::first_chunk_mut) {
        *place = present.to_le_bytes();
    }
}

fn encode_adapters(adapters: &Adapters) -> Vec<u8> {
    let lists =
        [&adapters.running, &adapters.waiting].map(|list| list.get(..MAX_ADAPTERS).unwrap_or(list));
    let mut out = adapters.max.unwrap_or(u32::MAX).to_le_bytes().to_vec();
    for list in lists {
        out.push(u8::try_from(list.len()).unwrap_or_default());
    }
    for name in lists.into_iter().flatten() {
        out.extend_from_slice(&name.to_le_bytes());
    }
    out
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// When another version wrote it, or when it is no snapshot at all.
pub fn decode(bytes: &[u8]) -> Result<Vec<EndpointSnapshot>, SnapshotError> {
    let (&version, rest) = bytes.split_first().ok_or(SnapshotError::Corrupt)?;
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    decode_endpoints(&mut Reader(rest)).ok_or(SnapshotError::Corrupt)
}

fn decode_endpoints(reader: &mut Reader<'_>) -> Option<Vec<EndpointSnapshot>> {
    let count = usize::from(reader.u16()?);
    if count > MAX_ENDPOINTS {
        return None;
    }
    let mut endpoints = Vec::new();
    for _ in 0..count {
        let len = usize::from(reader.u8()?);
        let address = core::str::from_utf8(reader.take(len)?).ok()?.to_owned();
        let health = match reader.u8()? {
            0 => None,
            code => Some(Health::ALL.into_iter().find(|h| *h as u8 == code)?),
        };
        let role = match reader.u8()? {
            0 => None,
            bits if bits & 1 == 1 && bits < 8 => Some(Role {
                decodes: bits & 2 != 0,
                prefills: bits & 4 != 0,
            }),
            _ => return None,
        };
        let read_at = Millis(reader.u64()?);
        let load = decode_load(reader)?;
        endpoints.push(EndpointSnapshot {
            address,
            health,
            role,
            load,
            read_at,
        });
    }
    reader.0.is_empty().then_some(endpoints)
}

fn decode_load(reader: &mut Reader<'_>) -> Option<Load> {
    let mut present = Present(reader.u16()?);
    let load = Load {
        engine: present.next(|| {
            let code = reader.u8()?;
            Engine::ALL.into_iter().find(|e| *e as u8 == code)
        })?,
        waiting: present.next(|| reader.f32())?,
        running: present.next(|| reader.f32())?,
        kv_use: present.next(|| reader.f32())?,
        cache_hit_rate: present.next(|| reader.f32())?,
        capacity_tokens: present.next(|| reader.u64())?,
        block_tokens: present.next(|| reader.u32())?,
        prefix_queries: present.next(|| reader.f64())?,
        prefix_hits: present.next(|| reader.f64())?,
        external_prefix_queries: present.next(|| reader.f64())?,
        external_prefix_hits: present.next(|| reader.f64())?,
        adapters: present.next(|| decode_adapters(reader))?,
    };
    (present.0 == 0).then_some(load)
}

fn decode_adapters(reader: &mut Reader<'_>) -> Option<Adapters> {
    let max = reader.u32()?;
    let lens = [usize::from(reader.u8()?), usize::from(reader.u8()?)];
    let [running, waiting] = lens.map(|len| {
        let names = reader.take(len.checked_mul(8)?)?;
        let (names, _) = names.as_chunks();
        let names = names.iter().map(|name| u64::from_le_bytes(*name));
        (len <= MAX_ADAPTERS).then(|| names.collect())
    });
    Some(Adapters {
        running: running?,
        waiting: waiting?,
        max: Some(max).filter(|max| *max != u32::MAX),
    })
}

/// The bits of the figures not read yet, lowest next.
struct Present(u16);

impl Present {
    /// The next figure: outer `None` = corrupt, inner = not present.
    #[expect(
        clippy::option_option,
        reason = "corrupt and absent are different things"
    )]
    fn next<T>(&mut self, read: impl FnOnce() -> Option<T>) -> Option<Option<T>> {
        let is_present = self.0 & 1 == 1;
        self.0 >>= 1;
        if is_present {
            read().map(Some)
        } else {
            Some(None)
        }
    }
}

/// Bytes not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A finite number, at least 0: no figure is anything else.
    fn f32(&mut self) -> Option<f32> {
        let value = self.array().map(f32::from_le_bytes)?;
        (value.is_finite() && value >= 0.0).then_some(value)
    }

    fn f64(&mut self) -> Option<f64> {
        let value = self.array().map(f64::from_le_bytes)?;
        (value.is_finite() && value >= 0.0).then_some(value)
    }
}
