"""Adds to an OCI layout: a component as an artifact, or a signed statement about an artifact.

usage: layout.py digest LAYOUT TAG                        prints the artifact's digest in hexadecimal
       layout.py component LAYOUT TAG FILE  <INSPECTION   what `skysail inspect --output json` prints
       layout.py attach LAYOUT TAG BUNDLE PREDICATE_TYPE  a bundle of cosign about the tag's artifact

The artifact has the form that `skysail push` gives it, a bundle the form of `cosign sign` and
`cosign attest`. SOURCE_DATE_EPOCH is the time of creation.
"""

import hashlib
import json
import os
import pathlib
import sys
from datetime import datetime, timezone

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
NAME = "org.opencontainers.image.ref.name"
CREATED = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def blob(layout, kind, content):
    """Stores a blob, and returns its descriptor."""
    name = hashlib.sha256(content).hexdigest()
    (layout / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs/sha256" / name).write_bytes(content)
    return {"mediaType": kind, "digest": f"sha256:{name}", "size": len(content)}


def text(value):
    return json.dumps(value, separators=(",", ":")).encode()


def listed(layout):
    file = layout / "index.json"
    return json.loads(file.read_text())["manifests"] if file.exists() else []


def add(layout, manifest, **more):
    """Stores a manifest and lists it in the index, with further fields of the descriptor."""
    entry = blob(layout, MANIFEST, text(manifest)) | more
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}
    (layout / "index.json").write_bytes(text(index | {"manifests": [*listed(layout), entry]}))
    (layout / "oci-layout").write_bytes(text({"imageLayoutVersion": "1.0.0"}))


def component(layout, tag, file):
    inspection, content = json.load(sys.stdin), pathlib.Path(file).read_bytes()
    names = {side: [interface["name"] for interface in inspection[side]] for side in ("exports", "imports")}
    layer = blob(layout, "application/wasm", content)
    config = {"architecture": "wasm", "component": names, "created": CREATED, "layerDigests": [layer["digest"]], "os": "wasip2"}
    add(layout, {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob(layout, "application/vnd.wasm.config.v0+json", text(config)),
        "layers": [layer | {"annotations": {"org.opencontainers.image.title": pathlib.Path(file).name}}],
        "annotations": {"org.opencontainers.image.version": tag, "org.opencontainers.image.created": CREATED},
    }, annotations={NAME: tag})


def tagged(layout, tag):
    return next(entry for entry in listed(layout) if entry.get("annotations", {}).get(NAME) == tag)


def attach(layout, tag, bundle, predicate_type):
    artifact = tagged(layout, tag)
    annotations = {
        "dev.sigstore.bundle.content": "dsse-envelope",
        "dev.sigstore.bundle.predicateType": predicate_type,
        "org.opencontainers.image.created": CREATED,
    }
    add(layout, {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": BUNDLE,
        "config": blob(layout, "application/vnd.oci.empty.v1+json", b"{}"),
        "layers": [blob(layout, BUNDLE, pathlib.Path(bundle).read_bytes())],
        "subject": {key: artifact[key] for key in ("mediaType", "digest", "size")},
        "annotations": annotations,
    }, artifactType=BUNDLE, annotations=annotations)


match sys.argv[1:]:
    case ["digest", layout, tag]:
        print(tagged(pathlib.Path(layout), tag)["digest"].removeprefix("sha256:"))
    case ["component", layout, tag, file]:
        component(pathlib.Path(layout), tag, file)
    case ["attach", layout, tag, bundle, predicate_type]:
        attach(pathlib.Path(layout), tag, bundle, predicate_type)
    case _:
        sys.exit(__doc__)
