//! The core's borders, held against the sources: only `src/host/` names the SDK, and the core reads
//! no clock, starts no thread, logs nothing and keeps nothing in globals.
//!
//! Comments and unit tests are not code of the plugin and are left out of the scan.

use std::fs;
use std::path::{Path, PathBuf};

/// What the core must not name, and what it does instead.
const FORBIDDEN: [(&str, &str); 16] = [
    ("proxy_wasm", "only src/host/ talks to the gateway"),
    (
        "std::time",
        "time comes in as Millis; lengths are core::time",
    ),
    ("SystemTime", "time comes in as Millis"),
    ("Instant::now", "time comes in as Millis"),
    ("std::thread", "there is one thread"),
    (
        "thread_local!",
        "state belongs to a value that a caller owns",
    ),
    ("static mut", "state belongs to a value that a caller owns"),
    ("OnceLock", "state belongs to a value that a caller owns"),
    ("LazyLock", "state belongs to a value that a caller owns"),
    (
        "RandomState",
        "needs the system's randomness: use hashbrown",
    ),
    (
        "std::collections::Hash",
        "needs the system's randomness: use hashbrown",
    ),
    ("log::", "what a test or a person needs to see is returned"),
    ("print!", "what a test or a person needs to see is returned"),
    (
        "println!",
        "what a test or a person needs to see is returned",
    ),
    ("dbg!", "what a test or a person needs to see is returned"),
    ("std::env", "everything comes from the configuration"),
];

/// The plugin's code in one source: comments cut off, and all from the unit tests on.
fn code(source: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut all = source.lines().enumerate().peekable();
    while let Some((number, line)) = all.next() {
        let begins_tests = line.trim() == "#[cfg(test)]"
            && all
                .peek()
                .is_some_and(|(_, next)| next.starts_with("mod tests {"));
        if begins_tests {
            break;
        }
        let line = line.split("//").next().unwrap_or_default();
        lines.push((number + 1, line));
    }
    lines
}

fn violations(path: &str, source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in code(source) {
        for (word, instead) in FORBIDDEN {
            if line.contains(word) {
                found.push(format!("{path}:{number}: `{word}`: {instead}"));
            }
        }
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("the sources can be listed").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_core_stays_within_its_borders() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    let core: Vec<_> = paths
        .iter()
        .filter(|path| !path.starts_with(root.join("host")))
        .filter(|path| path.file_name().is_none_or(|name| name != "tests.rs"))
        .collect();
    assert!(
        core.len() > 10,
        "only {} sources found under {}",
        core.len(),
        root.display()
    );

    let mut found = Vec::new();
    for path in core {
        let source = fs::read_to_string(path).expect("a source can be read");
        found.extend(violations(&path.display().to_string(), &source));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn the_scan_sees_code_and_skips_comments_and_tests() {
    let source = "\
//! Knows nothing of proxy_wasm.
use std::time::Duration; // not log::info
fn now() { std::thread::yield_now(); }
#[cfg(test)]
mod tests {
    use std::time::Instant;
}
";
    let found = violations("a.rs", source);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("a.rs:2: `std::time`"));
    assert!(found[1].starts_with("a.rs:3: `std::thread`"));
    for (word, _) in FORBIDDEN {
        assert!(
            !violations("a.rs", &format!("let x = {word};")).is_empty(),
            "{word}"
        );
    }
}
