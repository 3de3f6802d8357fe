#!/usr/bin/env bash
# Writes the Higress plugin as an OCI image: dist/oci/ (a layout) and dist/warmroute-higress.oci.tar.
# Two layers, as gateways that pull plugins expect them: an empty configuration, then the module itself.
# The same plugin gives the same bytes: nothing in the image or the archive tells when or where it was made.
set -euo pipefail
cd -P "$(dirname "$0")/.."

readonly MODULE=dist/warmroute-higress.wasm
readonly LAYOUT=dist/oci
readonly ARCHIVE=dist/warmroute-higress.oci.tar

say() { echo "oci: $*"; }
die() { echo "oci: $*" >&2; exit 1; }

[ -f "$MODULE" ] || die "$MODULE is not there: make build"
command -v python3 >/dev/null || die "python3 is not there (Debian: apt-get install python3)"
version=$(<higress/VERSION)

rm -rf "$LAYOUT" "$ARCHIVE"
python3 - "$MODULE" "$LAYOUT" "$ARCHIVE" "$version" <<'PYTHON'
import hashlib, json, pathlib, sys, tarfile

module, layout, archive, version = sys.argv[1:]
layout = pathlib.Path(layout)
blobs = layout / "blobs" / "sha256"
blobs.mkdir(parents=True)


def write(data, media_type):
    """Writes a blob and describes it."""
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def as_json(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


code = pathlib.Path(module).read_bytes()
layers = [
    write(b"{}", "application/vnd.module.wasm.config.v1+json"),
    write(code, "application/vnd.module.wasm.content.layer.v1+wasm"),
]
# What tools that copy images ask for; a gateway reads only the layers.
config = as_json({
    "architecture": "wasm",
    "os": "wasi",
    "config": {},
    "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
})
manifest = write(as_json({
    "schemaVersion": 2,
    "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "config": write(config, "application/vnd.oci.image.config.v1+json"),
    "layers": layers,
    "annotations": {
        "org.opencontainers.image.title": "warmroute-higress.wasm",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    },
}), "application/vnd.oci.image.manifest.v1+json")
manifest["annotations"] = {"org.opencontainers.image.ref.name": version}
(layout / "oci-layout").write_bytes(as_json({"imageLayoutVersion": "1.0.0"}))
(layout / "index.json").write_bytes(as_json({"schemaVersion": 2, "manifests": [manifest]}))


def plain(entry):
    """Leaves out owner, time and rights of this machine's files."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
    for path in sorted(layout.rglob("*")):
        tar.add(path, path.relative_to(layout).as_posix(), recursive=False, filter=plain)
PYTHON
say "$LAYOUT and $ARCHIVE, version $version"

# Read back: with skopeo as a registry's client would, else digest by digest.
check=$(mktemp -d)
trap 'rm -rf "$check"' EXIT
if command -v skopeo >/dev/null; then
  skopeo inspect --raw "oci-archive:$ARCHIVE:$version" >"$check/manifest.json"
  skopeo copy --quiet "oci-archive:$ARCHIVE:$version" "dir:$check/image"
  by="$(skopeo --version)"
else
  say "no skopeo (Debian: apt-get install skopeo): the archive is read back without it"
  mkdir "$check/image"
  tar -xf "$ARCHIVE" -C "$check"
  digest=$(sed 's/.*"digest":"sha256:\([0-9a-f]*\)".*/\1/' "$check/index.json")
  cp "$check/blobs/sha256/$digest" "$check/manifest.json"
  (cd "$check/blobs/sha256" && for blob in *; do echo "$blob  $blob"; done | sha256sum --check --quiet) ||
    die "a blob of $ARCHIVE does not have the digest that it is named by"
  cp "$check"/blobs/sha256/* "$check/image/"
  by="its digests"
fi
layer=$(python3 -c '
import json, sys
layers = json.load(open(sys.argv[1]))["layers"]
kinds = [layer["mediaType"] for layer in layers]
assert kinds == ["application/vnd.module.wasm.config.v1+json", "application/vnd.module.wasm.content.layer.v1+wasm"], kinds
print(layers[1]["digest"].removeprefix("sha256:"))' "$check/manifest.json")
cmp "$check/image/$layer" "$MODULE" || die "the module in $ARCHIVE is another one than $MODULE"
say "read back with $by: two layers, the second is $MODULE"
say "push: skopeo copy oci-archive:$ARCHIVE:$version docker://<registry>/warmroute:$version"
