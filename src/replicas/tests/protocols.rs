//! What is asked of Redis and etcd, word by word, and how their answers are read.

use super::*;

#[test]
fn redis_is_asked_and_read() {
    let mut redis = Redis::new("g");
    assert_eq!(redis.read(), None, "where the present is, a put tells");
    assert_eq!(redis.keep(Millis(0)), None);
    let put = redis.put(1, 2, b"\0\r\n").unwrap();
    assert_eq!(
        put.bytes,
        b"*8\r\n$4\r\nXADD\r\n$13\r\nwarmroute:1:g\r\n$6\r\nMAXLEN\r\n$1\r\n~\r\n$4\r\n1024\r\n$1\r\n*\r\n$1\r\nm\r\n$3\r\n\0\r\n\r\n"
    );
    let mut taken = Vec::new();
    let mut answer = |redis: &mut Redis, what, body: &[u8]| {
        redis.answer(what, 0, body, &mut |message| taken.push(message.to_vec()))
    };
    answer(&mut redis, What::Put, b"$6\r\n9000-0\r\n").unwrap();
    let read = String::from_utf8(redis.read().unwrap().bytes).unwrap();
    assert!(
        read.ends_with("$13\r\nwarmroute:1:g\r\n$6\r\n8000-0\r\n"),
        "{read:?}"
    );
    let entry = b"*1\r\n*2\r\n$13\r\nwarmroute:1:g\r\n*2\r\n*2\r\n$6\r\n9000-1\r\n*4\r\n$1\r\nm\r\n$2\r\nab\r\n$1\r\nn\r\n$0\r\n\r\n*2\r\n$6\r\n9000-2\r\n*2\r\n$1\r\nm\r\n$1\r\nc\r\n";
    answer(&mut redis, What::Read, entry).unwrap();
    assert!(
        String::from_utf8(redis.read().unwrap().bytes)
            .unwrap()
            .contains("9000-2")
    );
    for nil in [&b"*-1\r\n"[..], b"$-1\r\n", b"_\r\n"] {
        answer(&mut redis, What::Read, nil).unwrap();
    }
    // Its data is gone: ids may be lower than the place that was reached.
    answer(&mut redis, What::Put, b"$6\r\n5000-0\r\n").unwrap();
    assert!(
        String::from_utf8(redis.read().unwrap().bytes)
            .unwrap()
            .contains("4000-0")
    );
    let keep = redis.keep(Millis(1)).unwrap();
    assert!(String::from_utf8(keep.bytes).unwrap().contains("PEXPIRE"));
    answer(&mut redis, What::Keep, b":1\r\n").unwrap();
    let mut rng = fastrand::Rng::with_seed(4);
    for _ in 0..20_000 {
        let mut bytes = entry.to_vec();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        bytes.truncate(rng.usize(..=bytes.len()));
        let _ = answer(&mut redis, What::Read, &bytes);
    }
    assert_eq!(taken[..2], [b"ab".to_vec(), b"c".to_vec()]);
}

#[test]
fn etcd_is_asked_and_read() {
    let mut etcd = Etcd::new("g");
    assert_eq!(etcd.put(1, 2, b"m"), None, "no lease yet");
    let grant = etcd.keep(Millis(0)).unwrap();
    assert_eq!(
        (grant.path, &*grant.bytes),
        ("/v3/lease/grant", &br#"{"TTL":"15"}"#[..])
    );
    let mut taken = Vec::new();
    let mut answer = |etcd: &mut Etcd, what, status, body: &str| {
        etcd.answer(what, status, body.as_bytes(), &mut |message| {
            taken.push(message.to_vec());
        })
    };
    answer(
        &mut etcd,
        What::Keep,
        200,
        r#"{"header":{"revision":"1"},"ID":"77","TTL":"15"}"#,
    )
    .unwrap();
    let put = etcd.put(1, 18, b"m").unwrap();
    assert_eq!(put.path, "/v3/kv/put");
    assert_eq!(
        String::from_utf8(put.bytes).unwrap(),
        r#"{"key":"d2FybXJvdXRlLzEvMS9nLzAwMDAwMDAwMDAwMDAwMDEvMg==","value":"bQ==","lease":"77"}"#
    );
    assert_eq!(etcd.read(), None);
    answer(
        &mut etcd,
        What::Put,
        200,
        r#"{"header":{"cluster_id":"1","revision":"40"}}"#,
    )
    .unwrap();
    let read = etcd.read().unwrap();
    assert_eq!(
        String::from_utf8(read.bytes).unwrap(),
        r#"{"key":"d2FybXJvdXRlLzEvMS9nLw==","range_end":"d2FybXJvdXRlLzEvMS9nMA==","min_mod_revision":"41","sort_target":"MOD","sort_order":"ASCEND","limit":"128"}"#
    );
    let entry = r#"{"key":"a","create_revision":"1","mod_revision":"43","version":"2","value":"bQ==","lease":"9"}"#;
    let some = |count: usize| {
        let entries = vec![entry; count].join(", ");
        format!(r#"{{"header":{{"revision":"50"}},"kvs":[{entries}],"more":true,"count":"90"}}"#)
    };
    answer(&mut etcd, What::Read, 200, &some(128)).unwrap();
    assert!(
        String::from_utf8(etcd.read().unwrap().bytes)
            .unwrap()
            .contains(r#""44""#),
        "there may be more"
    );
    answer(&mut etcd, What::Read, 200, &some(1)).unwrap();
    let read = etcd.read().unwrap();
    assert!(String::from_utf8(read.bytes).unwrap().contains(r#""51""#));
    answer(
        &mut etcd,
        What::Read,
        200,
        r#"{"header":{"revision":"50"}}"#,
    )
    .unwrap();
    assert!(
        String::from_utf8(etcd.read().unwrap().bytes)
            .unwrap()
            .contains(r#""51""#)
    );
    answer(&mut etcd, What::Put, 200, r#"{"header":{"revision":"3"}}"#).unwrap();
    assert!(
        String::from_utf8(etcd.read().unwrap().bytes)
            .unwrap()
            .contains(r#""4""#),
        "it lost its data"
    );
    let lower = r#"{"header":{"revision":"2"}}"#;
    answer(&mut etcd, What::Read, 200, lower).unwrap();
    let read = etcd.read().unwrap();
    assert!(
        String::from_utf8(read.bytes).unwrap().contains(r#":"1","#),
        "and again"
    );
    let kept = r#"{"result":{"header":{"revision":"3"},"ID":"77","TTL":"15"}}"#;
    answer(&mut etcd, What::Keep, 200, kept).unwrap();
    assert!(etcd.put(1, 1, b"").is_some());
    answer(
        &mut etcd,
        What::Keep,
        200,
        r#"{"result":{"header":{},"ID":"77"}}"#,
    )
    .unwrap();
    assert_eq!(etcd.put(1, 1, b""), None, "the lease is over");
    let refused = answer(&mut etcd, What::Put, 404, r#"{"error":"x","code":5}"#);
    assert_eq!(refused, Err(Trouble("it answers HTTP 404".to_owned())));
    assert!(answer(&mut etcd, What::Read, 200, "<html>").is_err());
    assert_eq!(taken, vec![b"m".to_vec(); 129]);
}

#[test]
fn base64_is_what_rfc_4648_says() {
    for (bytes, text) in [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
        ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"),
    ] {
        assert_eq!(base64::encode(bytes.as_bytes()), text);
    }
    assert_eq!(base64::encode(&[0xfb, 0xff, 0xbf]), "+/+/");
    let mut rng = fastrand::Rng::with_seed(2);
    for size in 0..200 {
        let bytes: Vec<u8> = (0..size).map(|_| rng.u8(..)).collect();
        assert_eq!(
            base64::decode(base64::encode(&bytes).as_bytes()),
            Some(bytes)
        );
    }
    for wrong in ["Zg=", "Z", "Z===", "Zm9v!", "Zm 9v"] {
        assert_eq!(base64::decode(wrong.as_bytes()), None, "{wrong}");
    }
}
