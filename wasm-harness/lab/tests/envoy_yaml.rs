//! The shipped `envoy/envoy.yaml` as a real Envoy reads it: every field known, the plugin loaded, its
//! configuration accepted.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Envoy that `ENVOY` names, else the one of `make setup`.
fn envoy() -> PathBuf {
    std::env::var_os("ENVOY").map_or_else(|| root().join(".envoy/envoy"), PathBuf::from)
}

/// Validates a configuration from the top of the tree, where its relative paths begin.
fn validate(yaml: &Path) -> Output {
    let envoy = envoy();
    Command::new(&envoy)
        .args(["--mode", "validate", "--config-path"])
        .arg(yaml)
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}: run `make setup`", envoy.display()))
}

fn shipped() -> String {
    std::fs::read_to_string(root().join("envoy/envoy.yaml")).expect("the file is shipped")
}

/// A variant of the shipped file, in the folder that cargo gives to this test.
fn variant(name: &str, from: &str, to: &str) -> PathBuf {
    let text = shipped();
    assert!(text.contains(from), "{from} is not in envoy.yaml any more");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text.replace(from, to)).expect("the variant can be written");
    path
}

#[test]
fn the_shipped_configuration_is_valid_with_the_built_plugin() {
    let output = validate(&root().join("envoy/envoy.yaml"));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    assert!(!log.contains("Deprecated field"), "{log}");
}

#[test]
fn a_configuration_that_the_plugin_refuses_is_no_valid_one() {
    let yaml = variant("refused.yaml", r#""endpoints": {"#, r#""endpionts": {"#);
    let output = validate(&yaml);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{log}");
    assert!(
        log.contains("endpionts"),
        "the refusal names the field:\n{log}"
    );
}

#[test]
fn a_plugin_that_is_not_there_is_no_valid_configuration() {
    let yaml = variant(
        "absent.yaml",
        "dist/warmroute-envoy.wasm",
        "dist/absent.wasm",
    );
    let output = validate(&yaml);
    assert!(!output.status.success());
}
