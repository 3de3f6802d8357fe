//! Host calls, each with its status as a number.
//!
//! The SDK's own wrappers are not used: they panic on statuses that they do not expect, and they
//! declare results as an enum, which a code outside of it (hosts answer 6 and 12) makes undefined
//! behaviour. Here every call is total: a failure is `Err(status)` or `None`, never a panic.
//!
//! Bytes that a host returns were allocated through this module's own allocator export and are owned
//! by the receiver.
//!
//! Source: proxy-wasm ABI 0.2.1; Higress's two host calls as its gateway declares them.

mod import;

use core::ptr;

/// A status other than OK, as the host gave it.
pub type Status = u32;

const OK: Status = 0;
const NOT_FOUND: Status = 1;
/// A compare-and-swap on shared data lost against another VM.
pub const CAS_MISMATCH: Status = 8;

/// Header maps (`proxy_map_type_t`).
#[allow(clippy::enum_variant_names, reason = "the ABI's names")]
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Map {
    RequestHeaders = 0,
    ResponseHeaders = 2,
    #[cfg(feature = "envoy")]
    CallResponseHeaders = 6,
}

/// Buffers (`proxy_buffer_type_t`).
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Buffer {
    RequestBody = 0,
    ResponseBody = 1,
    #[cfg(feature = "envoy")]
    CallResponseBody = 4,
    PluginConfiguration = 7,
    #[cfg(feature = "higress")]
    RedisAnswer = 9,
}

/// Metric types (`proxy_metric_type_t`).
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Metric {
    Counter = 0,
    Gauge = 1,
    Histogram = 2,
}

fn done(status: Status) -> Result<(), Status> {
    if status == OK { Ok(()) } else { Err(status) }
}

/// Takes over bytes that the host allocated here.
///
/// # Safety
/// `data` is null, or points at `size` bytes from this module's allocator that nobody else owns.
unsafe fn owned(data: *mut u8, size: usize) -> Vec<u8> {
    if data.is_null() || size == 0 {
        return Vec::new();
    }
    // SAFETY: the allocator export hands out boxed slices of exactly the size asked for.
    unsafe { Vec::from_raw_parts(data, size, size) }
}

/// Calls a host function that returns bytes.
fn bytes(call: impl FnOnce(*mut *mut u8, *mut usize) -> Status) -> Result<Vec<u8>, Status> {
    let (mut data, mut size) = (ptr::null_mut(), 0);
    done(call(&raw mut data, &raw mut size))?;
    // SAFETY: on OK the host has written what it allocated through our export, or left null.
    Ok(unsafe { owned(data, size) })
}

/// Writes a line to the gateway's log.
pub fn log(level: log::Level, message: &str) {
    let level = match level {
        log::Level::Trace => 0,
        log::Level::Debug => 1,
        log::Level::Info => 2,
        log::Level::Warn => 3,
        log::Level::Error => 4,
    };
    // SAFETY: pointer and length of a live string.
    unsafe { import::proxy_log(level, message.as_ptr(), message.len()) };
}

/// Nanoseconds since the Unix epoch; 0 when the host has no clock.
pub fn now_ns() -> u64 {
    let mut time = 0;
    // SAFETY: a pointer to a live integer.
    if unsafe { import::proxy_get_current_time_nanoseconds(&raw mut time) } == OK {
        time
    } else {
        0
    }
}

/// Asks for a tick each `period_ms`.
pub fn set_tick_period_ms(period_ms: u32) -> Result<(), Status> {
    // SAFETY: no pointers.
    done(unsafe { import::proxy_set_tick_period_milliseconds(period_ms) })
}

/// A property by its path, parts separated by NUL; `None` when the host does not have it.
pub fn property(path: &str) -> Option<Vec<u8>> {
    // SAFETY: pointer and length of a live string; out-pointers are ours.
    bytes(|value, size| unsafe {
        import::proxy_get_property(path.as_ptr(), path.len(), value, size)
    })
    .ok()
}

/// Sets a property: the request's filter state under `wasm.` and the path; Higress gives some a meaning.
pub fn set_property(path: &str, value: &[u8]) -> Result<(), Status> {
    // SAFETY: pointers and lengths of live slices.
    done(unsafe {
        import::proxy_set_property(path.as_ptr(), path.len(), value.as_ptr(), value.len())
    })
}

/// A header's value; `None` when absent or refused.
pub fn header(map: Map, name: &str) -> Option<Vec<u8>> {
    // SAFETY: as `property`.
    bytes(|value, size| unsafe {
        import::proxy_get_header_map_value(map as u32, name.as_ptr(), name.len(), value, size)
    })
    .ok()
}

/// Sets a header, in place of all values that it had.
pub fn set_header(map: Map, name: &str, value: &[u8]) -> Result<(), Status> {
    // SAFETY: pointers and lengths of live slices.
    done(unsafe {
        import::proxy_replace_header_map_value(
            map as u32,
            name.as_ptr(),
            name.len(),
            value.as_ptr(),
            value.len(),
        )
    })
}

/// Removes a header; one that is not there is fine.
pub fn remove_header(map: Map, name: &str) -> Result<(), Status> {
    // SAFETY: pointer and length of a live string.
    match unsafe { import::proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) } {
        OK | NOT_FOUND => Ok(()),
        status => Err(status),
    }
}

/// Up to `max` bytes of a buffer from `start` on.
pub fn buffer(which: Buffer, start: usize, max: usize) -> Result<Vec<u8>, Status> {
    // SAFETY: out-pointers are ours.
    bytes(|value, size| unsafe {
        import::proxy_get_buffer_bytes(which as u32, start, max, value, size)
    })
}

/// A value that VMs share, and its version.
pub fn shared(key: &str) -> Option<(Vec<u8>, u32)> {
    let mut cas = 0;
    // SAFETY: as `property`.
    let value = bytes(|value, size| unsafe {
        import::proxy_get_shared_data(key.as_ptr(), key.len(), value, size, &raw mut cas)
    });
    Some((value.ok()?, cas))
}

/// Sets a value that VMs share; with `cas` other than 0 only while its version is that one.
pub fn set_shared(key: &str, value: &[u8], cas: u32) -> Result<(), Status> {
    // SAFETY: pointers and lengths of live slices.
    done(unsafe {
        import::proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas)
    })
}

/// Defines a metric, or finds it by its name.
pub fn define_metric(kind: Metric, name: &str) -> Option<u32> {
    let mut id = 0;
    // SAFETY: pointer and length of a live string; the out-pointer is ours.
    let status =
        unsafe { import::proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &raw mut id) };
    done(status).ok().map(|()| id)
}

/// Adds to a counter or a gauge.
pub fn increment_metric(id: u32, offset: i64) -> Result<(), Status> {
    // SAFETY: no pointers.
    done(unsafe { import::proxy_increment_metric(id, offset) })
}

/// Records a value of a histogram.
pub fn record_metric(id: u32, value: u64) -> Result<(), Status> {
    // SAFETY: no pointers.
    done(unsafe { import::proxy_record_metric(id, value) })
}

/// Sends a request to a cluster; the answer comes with the returned token.
#[cfg(feature = "envoy")]
pub fn http_call(
    cluster: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    timeout_ms: u32,
) -> Result<u32, Status> {
    let headers = serialise(headers);
    let no_trailers = serialise(&[]);
    let mut token = 0;
    // SAFETY: pointers and lengths of live slices; the out-pointer is ours.
    let status = unsafe {
        import::proxy_http_call(
            cluster.as_ptr(),
            cluster.len(),
            headers.as_ptr(),
            headers.len(),
            body.as_ptr(),
            body.len(),
            no_trailers.as_ptr(),
            no_trailers.len(),
            timeout_ms,
            &raw mut token,
        )
    };
    done(status).map(|()| token)
}

/// Answers the request; it goes no further.
pub fn respond(status: u16, headers: &[(&str, &str)], body: &str) -> Result<(), Status> {
    const DETAILS: &str = "warmroute";
    const NO_GRPC_STATUS: i32 = -1;
    let headers = serialise(headers);
    // SAFETY: pointers and lengths of live slices.
    done(unsafe {
        import::proxy_send_local_response(
            u32::from(status),
            DETAILS.as_ptr(),
            DETAILS.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            NO_GRPC_STATUS,
        )
    })
}

/// A header map in the ABI's form: count, all sizes, then every key and value with a NUL behind it.
fn serialise(pairs: &[(&str, &str)]) -> Vec<u8> {
    let size_of = |text: &str| u32::try_from(text.len()).unwrap_or(0).to_le_bytes();
    let mut out = Vec::new();
    out.extend(u32::try_from(pairs.len()).unwrap_or(0).to_le_bytes());
    for (key, value) in pairs {
        out.extend(size_of(key));
        out.extend(size_of(value));
    }
    for (key, value) in pairs {
        for text in [key, value] {
            out.extend(text.as_bytes());
            out.push(0);
        }
    }
    out
}

/// The hosts of the request's cluster, in the layout that `endpoints::gateway_hosts` reads; empty when
/// there are none.
#[cfg(feature = "higress")]
pub fn upstream_hosts() -> Result<Vec<u8>, Status> {
    // SAFETY: out-pointers are ours.
    bytes(|value, size| unsafe { import::proxy_get_upstream_hosts(value, size) })
}

/// Sends the request to this host of its cluster, if the gateway finds it usable.
#[cfg(feature = "higress")]
pub fn override_host(address: &str) -> Result<(), Status> {
    // SAFETY: pointer and length of a live string.
    done(unsafe { import::proxy_set_upstream_override_host(address.as_ptr(), address.len()) })
}

/// Prepares for calls to a Redis: who to be there, and how long an answer may take.
#[cfg(feature = "higress")]
pub fn redis_init(
    cluster: &str,
    user: &str,
    password: &str,
    timeout_ms: u32,
) -> Result<(), Status> {
    // SAFETY: pointers and lengths of live strings.
    done(unsafe {
        import::proxy_redis_init(
            cluster.as_ptr(),
            cluster.len(),
            user.as_ptr(),
            user.len(),
            password.as_ptr(),
            password.len(),
            timeout_ms,
        )
    })
}

/// Sends a query in RESP; the answer comes with the returned token.
#[cfg(feature = "higress")]
pub fn redis_call(cluster: &str, query: &[u8]) -> Result<u32, Status> {
    let mut token = 0;
    // SAFETY: pointers and lengths of live slices; the out-pointer is ours.
    let status = unsafe {
        import::proxy_redis_call(
            cluster.as_ptr(),
            cluster.len(),
            query.as_ptr(),
            query.len(),
            &raw mut token,
        )
    };
    done(status).map(|()| token)
}
