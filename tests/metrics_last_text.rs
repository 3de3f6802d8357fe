//! Texts read one after the other: the same as each read alone, and old texts told from new ones.

use warmroute::endpoints::load::Load;
use warmroute::endpoints::scan::last_text::LastText;
use warmroute::endpoints::scan::scan_escaped;
use warmroute::raw_json::RawJsonStr;

const TEXTS: [&str; 8] = [
    include_str!("fixtures/metrics/vllm_full_busy.prom"),
    include_str!("fixtures/metrics/vllm_full_idle.prom"),
    include_str!("fixtures/metrics/vllm_data_parallel.prom"),
    include_str!("fixtures/metrics/vllm_lora_series.prom"),
    include_str!("fixtures/metrics/sglang_ranks.prom"),
    include_str!("fixtures/metrics/triton_trtllm.prom"),
    include_str!("fixtures/metrics/llamacpp.prom"),
    include_str!("fixtures/metrics/corners.prom"),
];

fn escaped(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    quoted[1..quoted.len() - 1].to_owned()
}

fn read(last: &mut LastText, text: &str) -> Option<Load> {
    last.read(RawJsonStr(text.as_bytes()))
}

fn whole(text: &str) -> Load {
    scan_escaped(RawJsonStr(text.as_bytes()))
}

/// The text with other values of other lengths; now and then one that does not count, or a timestamp.
fn other_values(text: &str, rng: &mut fastrand::Rng) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let sample = line.trim_end().rsplit_once(' ');
        match sample.filter(|_| !line.starts_with('#')) {
            Some((series, _)) if rng.u8(..4) == 0 => {
                let digits = rng.u32(..20);
                let value = match rng.u16(..2000) {
                    0 => "NaN".to_owned(),
                    1 => "-1".to_owned(),
                    2 => "+Inf".to_owned(),
                    3 => "7 1700000000000".to_owned(),
                    _ => format!("{:.3}", rng.f64() * 10_f64.powf(f64::from(digits) - 8.0)),
                };
                out.push_str(&format!("{series} {value}\n"));
            }
            _ => out.push_str(line),
        }
    }
    out
}

#[test]
fn other_values_are_read_as_by_a_full_scan() {
    let mut rng = fastrand::Rng::with_seed(11);
    for base in TEXTS {
        let mut last = LastText::default();
        let mut text = base.to_owned();
        for _ in 0..150 {
            let now = escaped(&text);
            if let Some(load) = read(&mut last, &now) {
                assert_eq!(load, whole(&now), "{now}");
            }
            text = other_values(&text, &mut rng);
        }
    }
}

#[test]
fn lines_that_go_and_texts_that_are_cut_are_read_as_by_a_full_scan() {
    let mut rng = fastrand::Rng::with_seed(12);
    for base in TEXTS {
        for _ in 0..60 {
            let mut last = LastText::default();
            read(&mut last, &escaped(base));
            let lines = base.split_inclusive('\n');
            let mut text: String = lines.filter(|_| rng.u8(..40) != 0).collect();
            if rng.bool() {
                text.truncate(text.floor_char_boundary(rng.usize(..=text.len())));
            }
            let now = escaped(&text);
            if let Some(load) = read(&mut last, &now) {
                assert_eq!(load, whole(&now), "{now}");
            }
        }
    }
}

#[test]
fn a_text_that_stays_is_old_for_ever() {
    for base in TEXTS {
        let text = escaped(base);
        let mut last = LastText::default();
        assert!(read(&mut last, &text).is_some());
        for _ in 0..200 {
            assert_eq!(read(&mut last, &text), None);
        }
    }
}

#[test]
fn an_idle_engine_is_alive_by_anything_that_it_counts() {
    let text = |cpu: u32| {
        let line = format!("process_cpu_seconds_total {cpu}");
        escaped(&TEXTS[1].replace("process_cpu_seconds_total 9.1379", &line))
    };
    assert_ne!(text(100), text(101));
    let mut last = LastText::default();
    assert!(read(&mut last, &text(100)).is_some());
    read(&mut last, &text(101));
    for cpu in 102..300 {
        assert!(read(&mut last, &text(cpu)).is_some(), "{cpu}");
    }
}

#[test]
fn a_series_that_is_new_is_seen_within_64_readings() {
    let old = TEXTS[0];
    let more = format!("{old}vllm:num_requests_waiting{{engine=\"1\"}} 5.0\n");
    let mut rng = fastrand::Rng::with_seed(13);
    let mut last = LastText::default();
    read(&mut last, &escaped(old));
    let seen = (0..65).any(|_| {
        let now = escaped(&other_values(&more, &mut rng));
        read(&mut last, &now) == Some(whole(&now))
    });
    assert!(seen);
}
