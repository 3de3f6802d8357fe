#!/usr/bin/env bash
# Format and lints, warnings denied: native, and for wasm once for each gateway.
set -euo pipefail
cd -P "$(dirname "$0")/.."

say() { echo "check: $*"; }

say "format"
cargo fmt --all --check
say "lints, native"
cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
if [ "$(<target/setup/wasm-toolchain)" = rustup ]; then
  for host in envoy higress; do
    say "lints, wasm for $host"
    cargo clippy --quiet --locked -p warmroute --lib --target wasm32-unknown-unknown --no-default-features \
      --features "$host" -- -D warnings
  done
else
  for host in envoy higress; do
    say "lints, for $host (natively: this Rust has no wasm target of its own)"
    cargo clippy --quiet --locked -p warmroute --lib --no-default-features --features "$host" -- -D warnings
  done
fi
