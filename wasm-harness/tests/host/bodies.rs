//! Bodies: cumulative sizes, limits, trailers, cut frames, resuming, replies.

use warmroute_harness::host::{Gateway, Options, Profile, StreamSpec, header_map};

use crate::guest::{envoy, gateway_with_limit, guest, post, said, start};

/// Stops on headers; holds the body until its end; reads the last two bytes then.
const HOLD: &str = r#"
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
  (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
    (call $say (local.get 1))
    (if (local.get 2) (then
      (call $status (call $proxy_get_buffer_bytes (i32.const 0)
        (i32.sub (local.get 1) (i32.const 2)) (i32.const 99) (i32.const 900) (i32.const 904)))
      (call $tell)))
    (i32.eqz (local.get 2)))
  (func (export "proxy_on_request_trailers") (param i32 i32) (result i32)
    (call $status (call $proxy_get_buffer_status (i32.const 0) (i32.const 900) (i32.const 904)))
    (call $say (i32.load (i32.const 900)))
    (i32.const 0))"#;

#[test]
fn sizes_add_up_while_the_filter_holds_the_body() {
    let mut vm = envoy(HOLD);
    let stream = post(&mut vm);
    vm.request_body(stream, b"abc", false).unwrap();
    vm.request_body(stream, b"defg", false).unwrap();
    assert!(vm.seen(stream).unwrap().upstream.headers.is_none());
    vm.request_body(stream, b"hi", true).unwrap();
    assert_eq!(said(&vm), ["03", "07", "09", "00", "hi"]);
    let upstream = &vm.seen(stream).unwrap().upstream;
    assert_eq!(
        (upstream.body.as_slice(), upstream.ended),
        (&b"abcdefghi"[..], true)
    );
}

#[test]
fn after_continue_chunks_pass_one_by_one() {
    let mut vm = envoy(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
           (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
             (call $say (local.get 1)) (i32.const 0))"#,
    );
    let stream = post(&mut vm);
    for chunk in [&b"abc"[..], b"de", b"f"] {
        vm.request_body(stream, chunk, chunk == b"f").unwrap();
    }
    assert_eq!(said(&vm), ["03", "02", "01"]);
    assert_eq!(vm.seen(stream).unwrap().upstream.chunk_sizes, [3, 2, 1]);
}

#[test]
fn a_body_over_the_limit_is_a_413() {
    let artifact = guest("0_2_1", HOLD);
    for (chunks, callbacks) in [
        (&[&b"12345678"[..], b"9"][..], 1),
        (&[&b"123456789"[..]][..], 1),
    ] {
        let mut vm = start(&artifact, &gateway_with_limit(8));
        let stream = post(&mut vm);
        for chunk in chunks {
            vm.request_body(stream, chunk, false).unwrap();
        }
        let seen = vm.seen(stream).unwrap();
        assert_eq!(
            seen.local_reply.as_ref().map(|reply| reply.status),
            Some(413)
        );
        assert_eq!(seen.downstream.header(":status").as_deref(), Some("413"));
        assert!(seen.upstream.headers.is_none() && !vm.hangs(stream));
        assert_eq!(said(&vm).len(), callbacks);
    }
}

#[test]
fn trailers_may_carry_the_end() {
    let mut vm = envoy(HOLD);
    let stream = post(&mut vm);
    vm.request_body(stream, b"abc", false).unwrap();
    vm.request_trailers(stream, header_map(&[("x-t", "1")]))
        .unwrap();
    assert_eq!(
        said(&vm),
        ["03", "00", "03"],
        "no body callback with the end; the body is readable"
    );
    let upstream = &vm.seen(stream).unwrap().upstream;
    assert_eq!(
        (upstream.body.as_slice(), upstream.ended),
        (&b"abc"[..], true)
    );
    assert_eq!(upstream.trailers, Some(header_map(&[("x-t", "1")])));
}

#[test]
fn an_older_host_hides_the_last_frame() {
    let options = Options {
        cuts_last_frame: true,
        ..Options::new(Profile::Envoy)
    };
    let mut vm = start(
        &guest("0_2_1", HOLD),
        &Gateway::with_options(Profile::Envoy, options),
    );
    let stream = post(&mut vm);
    vm.request_body(stream, b"abc", false).unwrap();
    vm.request_body(stream, b"de", true).unwrap();
    assert_eq!(said(&vm), ["03", "03", "00", "bc"]);
    assert_eq!(vm.seen(stream).unwrap().upstream.body, b"abcde");
}

#[test]
fn interleaved_streams_keep_apart() {
    let mut vm = envoy(HOLD);
    let (one, two) = (post(&mut vm), post(&mut vm));
    vm.request_body(one, b"1111", false).unwrap();
    vm.request_body(two, b"22", false).unwrap();
    vm.request_body(one, b"!!", true).unwrap();
    assert!(!vm.hangs(one) && !vm.seen(two).unwrap().upstream.ended);
    vm.request_body(two, b"??", true).unwrap();
    assert_eq!(said(&vm), ["04", "02", "06", "00", "!!", "04", "00", "??"]);
    assert_eq!(vm.close(two).unwrap().upstream.body, b"22??");
    assert!(vm.seen(two).is_none());
}

/// Pauses bodies; a tick resumes stream 2; `x-a` in a body callback resumes at once.
const RESUME: &str = r#"
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
  (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
    (call $say (local.get 1)) (i32.const 1))
  (func (export "proxy_on_tick") (param i32)
    (call $status (call $proxy_set_effective_context (i32.const 99)))
    (call $status (call $proxy_set_effective_context (i32.const 2)))
    (call $status (call $proxy_continue_stream (i32.const 0))))"#;

#[test]
fn a_tick_may_resume_a_stream_that_waits() {
    let mut vm = envoy(RESUME);
    let stream = post(&mut vm);
    vm.request_body(stream, b"abc", true).unwrap();
    assert!(vm.hangs(stream));
    vm.tick().unwrap();
    assert_eq!(said(&vm), ["03", "02", "00", "00"]);
    assert!(!vm.hangs(stream) && vm.violations().is_empty());
}

#[test]
fn after_stop_all_the_body_comes_with_the_resume() {
    let mut vm = start(&guest("0_2_1", RESUME), &Gateway::new(Profile::Higress));
    let stream = post(&mut vm);
    vm.request_body(stream, &[b'a'; 40_000], false).unwrap();
    assert!(vm.seen(stream).unwrap().backpressure);
    vm.tick().unwrap();
    let seen = vm.seen(stream).unwrap();
    assert!(seen.upstream.headers.is_some());
    assert_eq!(vm.fuel()["proxy_on_request_body"].calls, 1);
}

#[test]
fn a_resume_inside_the_own_callback_is_a_violation() {
    let mut vm = envoy(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
             (drop (call $proxy_continue_stream (i32.const 0))) (i32.const 1))"#,
    );
    post(&mut vm);
    assert_eq!(vm.violations().len(), 1);
}

#[test]
fn a_reply_goes_through_the_response_callbacks_and_wins_over_continue() {
    let mut vm = envoy(
        r#"(data (i32.const 0) "busy")
           (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
             (call $status (call $proxy_send_local_response (i32.const 503) (i32.const 0) (i32.const 4)
               (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 0) (i32.const -1)))
             (i32.const 0))
           (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
             (call $say (local.get 1)) (i32.const 0))"#,
    );
    let stream = post(&mut vm);
    let seen = vm.seen(stream).unwrap();
    assert_eq!(
        (
            seen.downstream.header(":status").as_deref(),
            &seen.downstream.body[..]
        ),
        (Some("503"), &b"busy"[..])
    );
    assert!(seen.upstream.headers.is_none());
    assert_eq!(said(&vm), ["00", "01"]);
}

#[test]
fn a_guest_may_change_a_body_and_reset_a_stream() {
    let mut vm = envoy(
        r#"(data (i32.const 0) "XY")
           (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
             (call $status (call $proxy_set_buffer_bytes
               (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2)))
             (call $status (call $proxy_set_buffer_bytes
               (i32.const 1) (i32.const 1) (i32.const 1) (i32.const 0) (i32.const 2)))
             (i32.const 0))
           (func (export "proxy_on_response_trailers") (param i32 i32) (result i32)
             (call $status (call $proxy_close_stream (i32.const 1))) (i32.const 0))"#,
    );
    let stream = vm.open_stream(StreamSpec::default()).unwrap();
    vm.response_headers(stream, header_map(&[(":status", "200")]), false)
        .unwrap();
    vm.response_body(stream, b"ab", false).unwrap();
    assert_eq!(vm.seen(stream).unwrap().downstream.body, b"XYab");
    vm.response_trailers(stream, header_map(&[])).unwrap();
    assert!(vm.seen(stream).unwrap().reset);
    assert_eq!(said(&vm), ["00", "02", "00"]);
}
