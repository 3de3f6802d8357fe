//! Every file of the fuzz corpora through the function that its target runs.

#[path = "../fuzz/targets.rs"]
mod targets;

use std::path::Path;

fn run_all(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is there") {
        let data = std::fs::read(entry.expect("an entry").path()).expect("a readable file");
        target(&data);
        // Cut anywhere, it must do no harm either.
        for cut in (0..data.len()).step_by(data.len() / 50 + 1) {
            target(&data[..cut]);
        }
        count += 1;
    }
    assert!(count >= 3, "{name}: {count} files");
}

#[test]
fn bodies() {
    run_all("body", targets::body);
}

#[test]
fn configurations() {
    run_all("config", targets::config);
}

#[test]
fn metrics() {
    run_all("metrics", targets::metrics);
}

#[test]
fn index_operations() {
    run_all("index", targets::index);
}

#[test]
fn exchanges() {
    run_all("exchange", targets::exchange);
}

#[test]
fn replicas() {
    run_all("replicas", targets::replicas);
}
