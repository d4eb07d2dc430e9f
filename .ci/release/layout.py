"""Adds to an OCI layout: a component as an artifact, images as one image for several architectures,
or a signed statement about either.

usage: layout.py component LAYOUT TAG FILE  <INSPECTION   what `skysail inspect --output json` prints
       layout.py images LAYOUT TAG IMAGE…   layouts with an image each, under the same tag
       layout.py digest LAYOUT TAG [ARCH]   prints the digest of what the tag names, or of its image
                                            for an architecture, in hexadecimal
       layout.py attach LAYOUT DIGEST BUNDLE PREDICATE_TYPE   a bundle of cosign about the digest

The artifact has the form that `skysail push` gives it, a bundle the form of `cosign sign` and
`cosign attest`. SOURCE_DATE_EPOCH is the time of creation.
"""

import hashlib
import json
import os
import pathlib
import shutil
import sys
from datetime import datetime, timezone

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
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


def read(layout, digest):
    return json.loads((layout / "blobs/sha256" / digest.removeprefix("sha256:")).read_text())


def add(layout, manifest, **more):
    """Stores a manifest and lists it in the layout, with further fields of the descriptor."""
    entry = blob(layout, manifest["mediaType"], text(manifest)) | more
    index = {"schemaVersion": 2, "mediaType": INDEX}
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


def images(layout, tag, parts):
    manifests, annotations = [], {}
    for part in parts:
        shutil.copytree(part / "blobs", layout / "blobs", dirs_exist_ok=True)
        entry = tagged(part, tag)
        manifest = read(layout, entry["digest"])
        config = read(layout, manifest["config"]["digest"])
        annotations = manifest["annotations"]
        platform = {key: config[key] for key in ("architecture", "os")}
        manifests.append({key: entry[key] for key in ("mediaType", "digest", "size")} | {"platform": platform})
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": annotations}
    add(layout, index, annotations={NAME: tag})


def digest(layout, tag, architecture=None):
    entry = tagged(layout, tag)
    if architecture:
        manifests = read(layout, entry["digest"])["manifests"]
        entry = next(entry for entry in manifests if entry["platform"]["architecture"] == architecture)
    return entry["digest"].removeprefix("sha256:")


def attach(layout, of, bundle, predicate_type):
    content = (layout / "blobs/sha256" / of).read_bytes()
    # The manifest of an image need not name its own type.
    subject = {
        "mediaType": json.loads(content).get("mediaType", MANIFEST),
        "digest": f"sha256:{of}",
        "size": len(content),
    }
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
        "subject": subject,
        "annotations": annotations,
    }, artifactType=BUNDLE, annotations=annotations)


match sys.argv[1:]:
    case ["component", layout, tag, file]:
        component(pathlib.Path(layout), tag, file)
    case ["images", layout, tag, *parts]:
        images(pathlib.Path(layout), tag, map(pathlib.Path, parts))
    case ["digest", layout, tag, *architecture]:
        print(digest(pathlib.Path(layout), tag, *architecture))
    case ["attach", layout, of, bundle, predicate_type]:
        attach(pathlib.Path(layout), of, bundle, predicate_type)
    case _:
        sys.exit(__doc__)
