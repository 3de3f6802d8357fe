//! Metrics texts of every engine, whole and broken: what each must tell.

use warmroute::endpoints::load::{Adapters, Engine, Load, adapter_hash};
use warmroute::endpoints::scan::{CUT_BYTES, scan, scan_escaped};
use warmroute::raw_json::RawJsonStr;

fn sample(name: &str) -> Vec<u8> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/metrics/");
    std::fs::read(format!("{dir}{name}")).unwrap()
}

/// The inside of the JSON string that holds `text`.
fn escaped(text: &[u8]) -> Vec<u8> {
    let json = serde_json::to_vec(&String::from_utf8_lossy(text)).unwrap();
    json[1..json.len() - 1].to_vec()
}

/// The load of a text, which must be the same in both forms.
fn load_of(text: &[u8]) -> Load {
    let load = scan(text);
    assert_eq!(scan_escaped(RawJsonStr(&escaped(text))), load);
    load
}

fn load(name: &str) -> Load {
    load_of(&sample(name))
}

fn figures(load: &Load) -> (Option<f32>, Option<f32>, Option<f32>) {
    (load.waiting, load.running, load.kv_use)
}

#[test]
fn vllm_full_text() {
    let busy = load("vllm_full_busy.prom");
    let expected = Load {
        engine: Some(Engine::Vllm),
        waiting: Some(41.0),
        running: Some(93.0),
        kv_use: Some(0.7184),
        capacity_tokens: Some(576_000),
        block_tokens: Some(64),
        prefix_queries: Some(9_812_360.0),
        prefix_hits: Some(6_500_000.0),
        external_prefix_queries: Some(4096.0),
        external_prefix_hits: Some(1024.0),
        cache_hit_rate: None,
        adapters: None,
    };
    assert_eq!(busy, expected);
    let idle = load("vllm_full_idle.prom");
    assert_eq!(figures(&idle), (Some(0.0), Some(0.0), Some(0.0)));
    assert_eq!(idle.prefix_queries, Some(0.0));
}

#[test]
fn vllm_old_names() {
    let old = load("vllm_old.prom");
    assert_eq!(figures(&old), (Some(3.0), Some(7.0), Some(0.625)));
    assert_eq!(old.capacity_tokens, Some(320_000));
    let adapters = old.adapters.unwrap();
    assert_eq!(adapters.max, Some(0));
    assert!(adapters.running.is_empty() && adapters.waiting.is_empty());
}

#[test]
fn kv_use_by_new_name_old_name_both_neither() {
    let new = "vllm:kv_cache_usage_perc 0.5\n";
    let old = "vllm:gpu_cache_usage_perc 0.25\n";
    for (text, kv_use) in [
        (new.to_owned(), Some(0.5)),
        (old.to_owned(), Some(0.25)),
        (format!("{new}{old}"), Some(0.5)),
        (format!("{old}{new}"), Some(0.5)),
        ("vllm:num_requests_running 1\n".to_owned(), None),
    ] {
        assert_eq!(load_of(text.as_bytes()).kv_use, kv_use, "{text}");
    }
}

#[test]
fn newest_adapter_series_counts() {
    let hashes = |names: &[&str]| names.iter().map(|n| adapter_hash(n.as_bytes())).collect();
    let expected = Adapters {
        running: hashes(&["sql", "chat"]),
        waiting: hashes(&["code"]),
        max: Some(3),
    };
    assert_eq!(load("vllm_lora_series.prom").adapters, Some(expected));
}

#[test]
fn adapter_names_with_escapes() {
    let text = br#"vllm:lora_requests_info{running_lora_adapters="a\"b,c\\d,caf\u00e9"} 1"#;
    let plain = scan(text).adapters.unwrap();
    assert_eq!(plain.running[0], adapter_hash(b"a\"b"));
    assert_eq!(plain.running[1], adapter_hash(b"c\\d"));
    let raw = br#"vllm:lora_requests_info{running_lora_adapters=\"caf\u00e9,\ud83d\ude00,\u003cx\u003e\"} 1\n"#;
    let adapters = scan_escaped(RawJsonStr(raw)).adapters.unwrap();
    let names = ["café", "😀", "<x>"].map(|name| adapter_hash(name.as_bytes()));
    assert_eq!(adapters.running, names);
}

#[test]
fn data_parallel_engines_add_up() {
    let load = load("vllm_data_parallel.prom");
    assert_eq!(figures(&load), (Some(5.0), Some(17.0), Some(0.5)));
    assert_eq!(load.capacity_tokens, Some(32 * 2200));
}

#[test]
fn corners_of_the_format() {
    let load = load("corners.prom");
    assert_eq!(figures(&load), (Some(5.0), Some(11.0), Some(0.375)));
    assert_eq!(load.prefix_queries, Some(1234.0));
}

#[test]
fn sglang() {
    let one = load("sglang.prom");
    assert_eq!(one.engine, Some(Engine::Sglang));
    assert_eq!(figures(&one), (Some(640.0), Some(88.0), Some(0.31)));
    assert_eq!(one.cache_hit_rate, Some(0.0625));
    assert_eq!(
        (one.capacity_tokens, one.block_tokens),
        (Some(240_000), Some(8))
    );
}

#[test]
fn sglang_ranks_and_priorities() {
    let ranks = load("sglang_ranks.prom");
    assert_eq!(figures(&ranks), (Some(8.0), Some(12.0), Some(0.3)));
    assert_eq!(ranks.capacity_tokens, Some(190_000));
    let parts =
        "sglang:num_queue_reqs{priority=\"1\"} 2\nsglang:num_queue_reqs{priority=\"2\"} 3\n";
    assert_eq!(load_of(parts.as_bytes()).waiting, Some(5.0));
}

#[test]
fn sglang_behind_an_exporter_without_colons() {
    let load = load("sglang_underscore.prom");
    assert_eq!(figures(&load), (Some(2.0), None, None));
    assert_eq!(load.cache_hit_rate, Some(0.5));
}

#[test]
fn other_engines() {
    let trtllm = load("trtllm_serve.prom");
    assert_eq!(trtllm.engine, Some(Engine::TrtllmServe));
    assert_eq!(figures(&trtllm), (Some(6.0), Some(17.0), Some(0.55)));
    assert_eq!(trtllm.capacity_tokens, Some(160_000));
    assert_eq!(trtllm.cache_hit_rate, Some(0.4));
    let triton = load("triton_trtllm.prom");
    assert_eq!(triton.engine, Some(Engine::TritonTrtllm));
    assert_eq!(figures(&triton), (Some(8.0), Some(21.0), Some(0.125)));
    assert_eq!(triton.capacity_tokens, Some(358_400));
    assert_eq!(triton.block_tokens, Some(64));
    let tgi = load("tgi.prom");
    assert_eq!(tgi.engine, Some(Engine::Tgi));
    assert_eq!(figures(&tgi), (Some(2.0), Some(13.0), None));
    let lmdeploy = load("lmdeploy.prom");
    assert_eq!(lmdeploy.engine, Some(Engine::Lmdeploy));
    assert_eq!(figures(&lmdeploy), (Some(1.0), Some(5.0), Some(0.2)));
    let llamacpp = load("llamacpp.prom");
    assert_eq!(llamacpp.engine, Some(Engine::LlamaCpp));
    assert_eq!(figures(&llamacpp), (Some(9.0), Some(2.0), Some(0.84)));
}

#[test]
fn nothing_understood_is_unknown_not_idle() {
    for name in ["list.json", "error_page.html", "trtllm_unprefixed.prom"] {
        assert!(load(name).is_unknown(), "{name}");
    }
    for text in ["", "\n", "vllm:", "xvllm:num_requests_waiting 1\n"] {
        assert!(load_of(text.as_bytes()).is_unknown(), "{text}");
    }
}

#[test]
fn windows_line_ends() {
    let text = b"vllm:num_requests_waiting 3\r\nvllm:num_requests_running{a=\"b\"} 4\r\n";
    assert_eq!(figures(&load_of(text)), (Some(3.0), Some(4.0), None));
}

#[test]
fn a_last_line_counts_unless_the_gateway_may_have_cut_it() {
    let short = b"vllm:num_requests_waiting 12";
    assert_eq!(load_of(short).waiting, Some(12.0));
    let line = b"vllm:num_requests_running 34\nvllm:num_requests_waiting 12";
    let mut long =
        b"# HELP a comment of sixty-four bytes, to fill the text with ......\n".repeat(1000);
    long.truncate(CUT_BYTES - line.len());
    *long.last_mut().unwrap() = b'\n';
    long.extend_from_slice(line);
    assert_eq!(long.len(), CUT_BYTES);
    assert_eq!(figures(&load_of(&long)), (None, Some(34.0), None));
}

#[test]
fn a_full_text_cut_anywhere_is_never_misread() {
    let whole = load("vllm_full_busy.prom");
    let mut text =
        b"# padding of the gateway's other metrics, sixty-four bytes .....\n".repeat(1050);
    text.extend(sample("vllm_full_busy.prom"));
    let some = |cut: Option<f32>, whole: Option<f32>| cut.is_none() || cut == whole;
    for cut in CUT_BYTES..text.len() {
        let part = scan(&text[..cut]);
        assert!(some(part.waiting, whole.waiting), "cut at {cut}");
        assert!(some(part.running, whole.running), "cut at {cut}");
        assert!(some(part.kv_use, whole.kv_use), "cut at {cut}");
    }
    let whole_text = scan(&text);
    assert_eq!(whole_text, whole);
}
