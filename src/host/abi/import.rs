//! The gateways' functions as they are imported: every one answers with a status.

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    pub fn proxy_log(level: u32, message: *const u8, len: usize) -> u32;
    pub fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    pub fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    pub fn proxy_get_property(
        path: *const u8,
        len: usize,
        value: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    pub fn proxy_set_property(path: *const u8, len: usize, value: *const u8, size: usize) -> u32;
    pub fn proxy_get_header_map_value(
        map: u32,
        key: *const u8,
        len: usize,
        value: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    pub fn proxy_replace_header_map_value(
        map: u32,
        key: *const u8,
        len: usize,
        value: *const u8,
        size: usize,
    ) -> u32;
    pub fn proxy_remove_header_map_value(map: u32, key: *const u8, len: usize) -> u32;
    pub fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        max: usize,
        value: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    pub fn proxy_get_shared_data(
        key: *const u8,
        len: usize,
        value: *mut *mut u8,
        size: *mut usize,
        cas: *mut u32,
    ) -> u32;
    pub fn proxy_set_shared_data(
        key: *const u8,
        len: usize,
        value: *const u8,
        size: usize,
        cas: u32,
    ) -> u32;
    pub fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_len: usize,
        body: *const u8,
        body_len: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    pub fn proxy_define_metric(kind: u32, name: *const u8, len: usize, id: *mut u32) -> u32;
    pub fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    pub fn proxy_record_metric(id: u32, value: u64) -> u32;
    #[cfg(feature = "envoy")]
    pub fn proxy_http_call(
        upstream: *const u8,
        upstream_len: usize,
        headers: *const u8,
        headers_size: usize,
        body: *const u8,
        body_size: usize,
        trailers: *const u8,
        trailers_size: usize,
        timeout_ms: u32,
        token: *mut u32,
    ) -> u32;
    #[cfg(feature = "higress")]
    pub fn proxy_get_upstream_hosts(value: *mut *mut u8, size: *mut usize) -> u32;
    #[cfg(feature = "higress")]
    pub fn proxy_set_upstream_override_host(address: *const u8, len: usize) -> u32;
    #[cfg(feature = "higress")]
    pub fn proxy_redis_init(
        upstream: *const u8,
        upstream_len: usize,
        user: *const u8,
        user_len: usize,
        password: *const u8,
        password_len: usize,
        timeout_ms: u32,
    ) -> u32;
    #[cfg(feature = "higress")]
    pub fn proxy_redis_call(
        upstream: *const u8,
        upstream_len: usize,
        query: *const u8,
        query_len: usize,
        token: *mut u32,
    ) -> u32;
}
