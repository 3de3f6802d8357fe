//! Header maps, properties, stop semantics of headers.

use warmroute_harness::host::{Gateway, Options, Profile, StreamSpec, header_map};

use crate::guest::{envoy, guest, post, said, start};

const STOP: &str = r#"
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
  (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
    (call $say (local.get 1)) (i32.const 0))"#;

#[test]
fn a_header_stop_lets_bodies_come_or_stops_all() {
    let envoy_without = Options {
        allow_on_headers_stop_iteration: false,
        ..Options::new(Profile::Envoy)
    };
    let cases = [
        ("0_2_1", Gateway::new(Profile::Envoy), true),
        (
            "0_2_1",
            Gateway::with_options(Profile::Envoy, envoy_without),
            false,
        ),
        ("0_2_1", Gateway::new(Profile::Higress), false),
        ("0_2_100", Gateway::new(Profile::Higress), true),
    ];
    for (abi, gateway, body_comes) in cases {
        let mut vm = start(&guest(abi, STOP), &gateway);
        let stream = post(&mut vm);
        assert!(vm.seen(stream).unwrap().upstream.headers.is_none());
        vm.request_body(stream, b"hello", true).unwrap();
        let case = format!("{abi} on {:?}", gateway.profile());
        assert_eq!(vm.hangs(stream), !body_comes, "{case}");
        assert_eq!(said(&vm).len(), usize::from(body_comes), "{case}");
        assert_eq!(
            vm.seen(stream).unwrap().upstream.body,
            if body_comes { &b"hello"[..] } else { b"" },
            "{case}"
        );
    }
}

#[test]
fn a_stop_on_headers_that_end_the_request_hangs() {
    let mut vm = envoy(STOP);
    let stream = vm.open_stream(StreamSpec::default()).unwrap();
    vm.request_headers(stream, header_map(&[(":method", "GET")]), true)
        .unwrap();
    assert!(vm.hangs(stream));
}

#[test]
fn values_are_read_added_replaced_and_removed_as_bytes() {
    let mut vm = envoy(
        r#"(data (i32.const 0) "x-Ax-bx-c\ff")
           (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
             (call $status (call $proxy_get_header_map_value
               (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 900) (i32.const 904)))
             (call $tell)
             (call $status (call $proxy_get_header_map_value
               (i32.const 0) (i32.const 3) (i32.const 3) (i32.const 900) (i32.const 904)))
             (call $status (call $proxy_add_header_map_value
               (i32.const 0) (i32.const 3) (i32.const 3) (i32.const 9) (i32.const 1)))
             (call $status (call $proxy_replace_header_map_value
               (i32.const 0) (i32.const 6) (i32.const 3) (i32.const 0) (i32.const 1)))
             (call $status (call $proxy_remove_header_map_value (i32.const 0) (i32.const 0) (i32.const 3)))
             (call $status (call $proxy_get_header_map_size (i32.const 0) (i32.const 900)))
             (call $say (i32.load (i32.const 900)))
             (call $status (call $proxy_get_header_map_value
               (i32.const 0) (i32.const 70000000) (i32.const 3) (i32.const 900) (i32.const 904)))
             (i32.const 0))
           (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
             (call $status (call $proxy_replace_header_map_value
               (i32.const 0) (i32.const 6) (i32.const 3) (i32.const 0) (i32.const 1)))
             (i32.const 0))"#,
    );
    let stream = post(&mut vm);
    assert_eq!(
        said(&vm),
        ["00", "1", "01", "00", "00", "00", "00", "27", "06"]
    );
    let mut wanted = header_map(&[(":method", "POST"), (":path", "/v1")]);
    wanted.push((b"x-b".to_vec(), vec![0xff]));
    wanted.extend(header_map(&[("x-c", "x")]));
    assert_eq!(vm.seen(stream).unwrap().upstream.headers, Some(wanted));
    vm.request_body(stream, b"late", true).unwrap();
    assert_eq!(
        said(&vm).last(),
        Some(&"02"),
        "headers are out of reach once they passed"
    );
}

#[test]
fn whole_maps_come_and_go_in_one_piece() {
    let mut vm = envoy(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
             (call $status (call $proxy_get_header_map_pairs (i32.const 0) (i32.const 900) (i32.const 904)))
             (call $say (i32.load (i32.load (i32.const 900))))
             (call $status (call $proxy_set_header_map_pairs
               (i32.const 0) (i32.load (i32.const 900)) (i32.load (i32.const 904))))
             (call $status (call $proxy_set_header_map_pairs
               (i32.const 0) (i32.load (i32.const 900)) (i32.const 9)))
             (i32.const 0))"#,
    );
    let stream = post(&mut vm);
    assert_eq!(said(&vm), ["00", "03", "00", "02"]);
    let headers = header_map(&[(":method", "POST"), (":path", "/v1"), ("x-a", "1")]);
    assert_eq!(vm.seen(stream).unwrap().upstream.headers, Some(headers));
}

#[test]
fn properties_depend_on_profile_and_phase() {
    let text = r#"
      (data (i32.const 0) "xds\00cluster_name")
      (data (i32.const 20) "cluster_name")
      (data (i32.const 40) "upstream\00address")
      (func $ask (param $path i32) (param $size i32)
        (call $status (call $proxy_get_property
          (local.get $path) (local.get $size) (i32.const 900) (i32.const 904))))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $ask (i32.const 0) (i32.const 16)) (call $tell)
        (call $ask (i32.const 20) (i32.const 12))
        (call $ask (i32.const 40) (i32.const 16))
        (i32.const 0))
      (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (call $ask (i32.const 40) (i32.const 16)) (call $tell)
        (i32.const 0))"#;
    for (profile, bare) in [(Profile::Envoy, "01"), (Profile::Higress, "00")] {
        let mut vm = start(&guest("0_2_1", text), &Gateway::new(profile));
        let stream = post(&mut vm);
        vm.update_spec(stream, |spec| {
            spec.upstream_address = Some("10.0.0.1:80".to_owned());
        });
        vm.response_headers(stream, header_map(&[(":status", "200")]), true)
            .unwrap();
        assert_eq!(
            said(&vm),
            ["00", "engines", bare, "01", "00", "10.0.0.1:80"]
        );
    }
}
