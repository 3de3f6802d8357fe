//! What the two built plugins ask of their gateways and offer to them, held against committed lists.
//!
//! An import that a gateway lacks keeps it from starting, so every change here is a decision.
//! A line that ends in [`LINKED_ONLY`] is there only as long as no optimiser has run.

use std::fs;
use std::path::{Path, PathBuf};
use warmroute_artifact::{Host, Surface};

const LINKED_ONLY: &str = " # without wasm-opt only";

/// The limit of the project for each plugin.
const SIZE_LIMIT_BYTES: usize = 600_000;

fn dist(host: Host) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../dist")
        .join(format!("warmroute-{host}.wasm"));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}: run `make build`", path.display()))
}

fn list_path(host: Host) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/lists")
        .join(format!("{host}.txt"))
}

/// Lines that only one side has: `+` the plugin's, `-` the list's.
fn difference(built: &[String], list: &str) -> Vec<String> {
    let listed: Vec<(&str, bool)> = list
        .lines()
        .map(|line| match line.strip_suffix(LINKED_ONLY) {
            Some(line) => (line, false),
            None => (line, true),
        })
        .collect();
    let added = built
        .iter()
        .filter(|line| !listed.iter().any(|(listed, _)| listed == line))
        .map(|line| format!("+ {line}"));
    let missing = listed
        .iter()
        .filter(|(line, required)| *required && !built.iter().any(|built| built == line))
        .map(|(line, _)| format!("- {line}"));
    added.chain(missing).collect()
}

#[test]
fn each_plugin_has_the_imports_and_exports_of_its_list() {
    for host in Host::ALL {
        let built = Surface::of(&dist(host))
            .expect("the plugin is a wasm module")
            .lines();
        let path = list_path(host);
        let list = fs::read_to_string(&path).expect("the list is committed");
        let difference = difference(&built, &list);
        assert!(
            difference.is_empty(),
            "warmroute-{host}.wasm and {} differ (+ only the plugin, - only the list):\n{}\n",
            path.display(),
            difference.join("\n")
        );
    }
}

#[test]
fn each_plugin_asks_for_nothing_that_its_gateway_lacks_and_has_one_abi_version() {
    for host in Host::ALL {
        let surface = Surface::of(&dist(host)).expect("the plugin is a wasm module");
        for import in &surface.imports {
            let (module, name) = import
                .strip_prefix("func ")
                .and_then(|import| import.split_once('.'))
                .unwrap_or_else(|| panic!("{import} is no function"));
            assert!(host.offers(module, name), "{host} lacks {import}");
        }
        let abis: Vec<_> = surface
            .exports
            .iter()
            .filter(|export| export.contains("abi_version"))
            .collect();
        assert_eq!(abis, [&format!("func {}", host.abi())]);
    }
}

#[test]
fn each_plugin_is_within_the_size_limit() {
    for host in Host::ALL {
        let size = dist(host).len();
        assert!(
            size <= SIZE_LIMIT_BYTES,
            "warmroute-{host}.wasm has {size} bytes"
        );
    }
}

#[test]
fn a_difference_is_seen_on_both_sides() {
    let built = ["import a".to_owned(), "export c".to_owned()];
    let list = format!("import a\nimport b\nimport d{LINKED_ONLY}\n");
    assert_eq!(difference(&built, &list), ["+ export c", "- import b"]);
}
