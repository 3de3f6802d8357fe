#!/usr/bin/env bash
# Builds both plugins: link, finish (exports, list of imports), optimise, write dist/. Then, in the same way, the
# module that `make bench` measures a decision's parts with: target/bench/.
# The same toolchain gives the same bytes in any folder: every path in them is remapped.
set -euo pipefail
cd -P "$(dirname "$0")/.."

readonly TARGET=wasm32-unknown-unknown
readonly LIMIT=$((600 * 1000))
toolchain=$(<target/setup/wasm-toolchain)
target_dir=$PWD/target/wasm-$toolchain

say() { echo "build: $*"; }
die() { echo "build: $*" >&2; exit 1; }

rustc=rustc
toolchain_env=()
toolchain_args=()
if [ "$toolchain" = debian ]; then
  rustc=/usr/bin/rustc
  toolchain_env=(RUSTC="$rustc" RUSTC_BOOTSTRAP=1)
  toolchain_args=(-Zbuild-std=std,panic_abort)
fi

# Paths that would enter the bytes by panic messages: the tree, cargo's registry, the std sources.
rust_src=$("$rustc" --print sysroot)/lib/rustlib/src/rust
# A low bound for inlining takes 35 KB off; hot loops say themselves what they want inlined, and lose under 5 %.
flags=(
  -Ctarget-feature=+simd128
  -Cllvm-args=-inline-threshold=30
  "--remap-path-prefix=$PWD=/warmroute"
  "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
  "--remap-path-prefix=$rust_src=/rust"
)
if [ -e "$rust_src" ]; then flags+=("--remap-path-prefix=$(realpath "$rust_src")=/rust"); fi
encoded=$(printf '%s\x1f' "${flags[@]}")

# Each gateway has its own folder: a cdylib's file name is the same for both, and one would make the
# other stale.
link() { # folder package [features]
  env "${toolchain_env[@]}" CARGO_ENCODED_RUSTFLAGS="${encoded%$'\x1f'}" cargo build --quiet --locked --release \
    --target "$TARGET" --target-dir "$target_dir/$1" "${toolchain_args[@]}" --lib -p "$2" \
    --no-default-features --features "${3-}"
}

# The instructions that this Rust emits by default, and SIMD; anything else is a mistake.
readonly FEATURES=(--enable-simd --enable-bulk-memory --enable-sign-ext --enable-nontrapping-float-to-int
  --enable-mutable-globals --enable-multivalue --enable-reference-types)

optimise() { # in out
  if ! command -v wasm-opt >/dev/null; then
    say "no wasm-opt (Debian: apt-get install binaryen): ${2##*/} stays as linked, larger and slower"
    cp "$1" "$2"
  elif wasm-opt -O3 "${FEATURES[@]}" "$1" -o "$2" 2>"$work/wasm-opt.log"; then
    say "${2##*/}: $(wasm-opt --version) -O3, $(stat -c %s "$1") -> $(stat -c %s "$2") bytes"
  else
    say "$(wasm-opt --version) cannot read this module ($(head -1 "$work/wasm-opt.log")): ${2##*/} stays as linked"
    cp "$1" "$2"
  fi
}

# Optimising takes longer than all the rest of a warm build: not again for the same input and tool.
optimise_once() { # in out
  local made_from
  made_from="$optimiser $(sha256sum <"$1")"
  if [ -f "$2" ] && [ "$(cat "$2.made-from" 2>/dev/null)" = "$made_from" ]; then
    say "${2##*/} is unchanged ($optimiser)"
  else
    rm -f "$2.made-from"
    optimise "$1" "$2"
    echo "$made_from" >"$2.made-from"
  fi
}

optimiser=$(wasm-opt --version 2>/dev/null || echo "no wasm-opt")
work=$target_dir/finish
mkdir -p "$work" dist
say "with $("$rustc" --version)"
cargo build --quiet --locked -p warmroute-artifact
for host in envoy higress; do
  say "linking for $host"
  link "$host" warmroute "$host"
  target/debug/warmroute-artifact finish --host "$host" "$target_dir/$host/$TARGET/release/warmroute.wasm" "$work/$host.wasm"
  optimise_once "$work/$host.wasm" "$work/warmroute-$host.wasm"
  size=$(stat -c %s "$work/warmroute-$host.wasm")
  [ "$size" -le "$LIMIT" ] || die "warmroute-$host.wasm has $size bytes, over the limit of $LIMIT$(
    command -v wasm-opt >/dev/null || echo "; wasm-opt takes an eighth off (Debian: apt-get install binaryen)")"
  # An unchanged plugin keeps its time stamp, so that nothing that depends on it runs again.
  cmp -s "$work/warmroute-$host.wasm" "dist/warmroute-$host.wasm" || cp "$work/warmroute-$host.wasm" dist/
done
# What `make bench` measures apart, compiled as the plugins are.
say "linking the parts for the bench"
if [ ! -d "$target_dir/parts" ]; then
  # A gateway's folder has all dependencies built already, in Debian's way the standard library too.
  rm -rf "$target_dir/parts.new"
  cp -a "$target_dir/higress" "$target_dir/parts.new"
  mv "$target_dir/parts.new" "$target_dir/parts"
fi
link parts warmroute-parts
optimise_once "$target_dir/parts/$TARGET/release/warmroute_parts.wasm" "$work/warmroute-parts.wasm"
mkdir -p target/bench
cp "$work/warmroute-parts.wasm" target/bench/
# For which build the figures in benches/budget.json are exact.
echo "$("$rustc" --version), $optimiser" >dist/BUILT_WITH
(cd dist && sha256sum warmroute-envoy.wasm warmroute-higress.wasm >SHA256SUMS)
sed 's/^/build: dist: /' dist/SHA256SUMS
