"""Writes the SBOM of each part of a release, as SPDX 2.3 (OUT.spdx.json) and as CycloneDX 1.6
(OUT.cdx.json). The libraries of both formats validate what they write. The same input gives the
same bytes: SOURCE_DATE_EPOCH is the time of creation.

usage: sbom.py VERSION <PARTS     a part in each line, with tabs between the words:
  program   OUT FILE TREE               an executable
  component OUT FILE TREE               a provider
  image     OUT DIGEST FILE TREE DEBS   an image with the executable and packages
  chart     OUT FILE DIGEST             a chart that installs the image

TREE is the output of `cargo tree --prefix depth --format '{p}<tab>{l}'`; DEBS is a folder of Debian
packages. Run it in the repository's root, where Cargo.lock has the checksums of the crates.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing
from packageurl import PackageURL
from spdx_tools.spdx.model import (
    Actor, ActorType, Checksum, ChecksumAlgorithm, CreationInfo, Document, ExternalPackageRef,
    ExternalPackageRefCategory, Package, PackagePurpose, Relationship, RelationshipType, SpdxNoAssertion,
)
from spdx_tools.spdx.writer.write_anything import write_file

VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)
EPOCH = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)


@dataclass
class Part:
    """The subject of an SBOM, or something in it."""

    name: str
    version: str
    kind: str = "library"  # of CycloneDX: application, container or library
    sha256: str | None = None
    licence: str | None = None
    purl: PackageURL | None = None
    needs: list["Part"] = field(default_factory=list)

    @property
    def key(self):
        return re.sub(r"[^A-Za-z0-9.-]", "-", f"{self.kind}-{self.name}-{self.version}")


def sha256(file):
    return hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()


def ours(name, version, kind, **more):
    return Part(name, version, kind, licence="Apache-2.0", **more)


def linked(root, file, tree):
    """Adds to root what the compiler linked into the file: crates, and Rust's standard library."""
    lock = tomllib.loads(pathlib.Path("Cargo.lock").read_text())["package"]
    sums = {(p["name"], p["version"]): p.get("checksum") for p in lock}
    parts, above = {}, []
    for line in pathlib.Path(tree).read_text().splitlines():
        depth, name, version, licence = re.match(r"(\d+)(\S+) v(\S+)[^\t]*\t(.*?)(?: \(\*\))?$", line).groups()
        if depth == "0":
            part = root
        elif (name, version) in parts:
            part = parts[name, version]
        else:
            checksum = sums[name, version]
            # A crate without a checksum is one of the repository, which no registry has.
            purl = PackageURL("cargo", None, name, version) if checksum else None
            part = Part(name, version, sha256=checksum, licence=re.sub(r"\s*/\s*", " OR ", licence) or None, purl=purl)
            parts[name, version] = part
        del above[int(depth):]
        if above and part not in above[-1].needs:
            above[-1].needs.append(part)
        above.append(part)
    content = pathlib.Path(file).read_bytes()
    # An executable has the compiler's version in .comment, a component in its section `producers`.
    says = rb"rustc version (\d+\.\d+\.\d+)" if content.startswith(b"\x7fELF") else rb"rustc.(\d+\.\d+\.\d+)"
    versions = sorted(set(re.findall(says, content)))
    if not versions:
        sys.exit(f"sbom: {file} does not name the compiler that built it; build it with rustc, unstripped of .comment")
    for version in versions:
        version = version.decode()
        purl = PackageURL("generic", None, "rust-std", version)
        root.needs.append(Part("rust-std", version, licence="MIT OR Apache-2.0", purl=purl))
    return root


def packages(folder):
    """The Debian packages of a folder."""
    system = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', pathlib.Path("/etc/os-release").read_text(), re.M))
    for file in sorted(pathlib.Path(folder).glob("*.deb")):
        fields = subprocess.run(["dpkg-deb", "-f", file, "Package", "Version", "Architecture"],
                                check=True, capture_output=True, text=True).stdout
        name, version, arch = (line.split(": ", 1)[1] for line in fields.splitlines())
        where = {"arch": arch, "distro": f"{system['ID']}-{system['VERSION_ID']}"}
        yield Part(name, version, sha256=sha256(file), purl=PackageURL("deb", system["ID"], name, version, where))


def subject(kind, version, rest):
    match kind, rest:
        case "program", [file, tree]:
            return linked(ours("skysail", version, "application", sha256=sha256(file)), file, tree)
        case "component", [file, tree]:
            name = pathlib.Path(file).stem
            return linked(ours(name, version, "application", sha256=sha256(file)), file, tree)
        case "image", [digest, file, tree, debs]:
            program = linked(ours("skysail", version, "application", sha256=sha256(file)), file, tree)
            image = ours("skysail-image", version, "container", sha256=digest)
            image.needs = [program, *packages(debs)]
            return image
        case "chart", [file, digest]:
            image = ours("skysail-image", version, "container", sha256=digest)
            return ours("skysail-chart", version, "application", sha256=sha256(file), needs=[image])
    sys.exit(__doc__)


def everything(root):
    """The root and all that it needs, each once, the root first."""
    found, queue = {}, [root]
    while queue:
        part = queue.pop(0)
        if part.key not in found:
            found[part.key] = part
            queue += part.needs
    return list(found.values())


def cyclonedx(root, parts, out):
    made = {}
    for part in parts:
        made[part.key] = Component(
            name=part.name, version=part.version, type=ComponentType(part.kind), bom_ref=part.key, purl=part.purl,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else [],
            licenses=[LicenseFactory().make_with_expression(part.licence)] if part.licence else [],
        )
    bom = Bom(components=[made[part.key] for part in parts[1:]],
              serial_number=uuid.uuid5(uuid.NAMESPACE_URL, namespace(root)))
    bom.metadata.component, bom.metadata.timestamp = made[root.key], EPOCH
    bom.metadata.tools.components.add(this_component())
    for part in parts:
        bom.register_dependency(made[part.key], [made[needed.key] for needed in part.needs])
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    error = VALIDATOR.validate_str(text)
    if error:
        sys.exit(f"sbom: {out}.cdx.json: not valid as CycloneDX 1.6 ({error}); correct .ci/release/sbom.py")
    pathlib.Path(f"{out}.cdx.json").write_text(text + "\n")


def spdx(root, parts, out):
    licensing, unknown = get_spdx_licensing(), SpdxNoAssertion()
    ids = {part.key: f"SPDXRef-{part.key}" for part in parts}
    made = [
        Package(
            spdx_id=ids[part.key], name=part.name, version=part.version, download_location=unknown,
            files_analyzed=False, copyright_text=unknown, license_concluded=unknown, supplier=unknown,
            license_declared=licensing.parse(part.licence) if part.licence else unknown,
            primary_package_purpose=PackagePurpose[part.kind.upper()],
            checksums=[Checksum(ChecksumAlgorithm.SHA256, part.sha256)] if part.sha256 else [],
            external_references=[ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", str(part.purl))]
            if part.purl else [],
        )
        for part in parts
    ]
    links = [Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES, ids[root.key])]
    for part in parts:
        links += [Relationship(ids[part.key], RelationshipType.DEPENDS_ON, ids[needed.key]) for needed in part.needs]
    information = CreationInfo(
        spdx_version="SPDX-2.3", spdx_id="SPDXRef-DOCUMENT", data_license="CC0-1.0", created=EPOCH.replace(tzinfo=None),
        name=f"{root.name}-{root.version}", document_namespace=namespace(root),
        creators=[Actor(ActorType.TOOL, f"skysail-release-{root.version}")],
    )
    # Validates the document before it writes, and fails with the reasons.
    write_file(Document(information, packages=made, relationships=links), f"{out}.spdx.json", validate=True)
    # On one line for each value, as the other document.
    file = pathlib.Path(f"{out}.spdx.json")
    file.write_text(json.dumps(json.loads(file.read_text()), indent=1) + "\n")


def namespace(root):
    return f"https://skysail.dev/sbom/{root.name}/{root.version}/{root.sha256}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for line in sys.stdin:
        kind, out, *rest = line.rstrip("\n").split("\t")
        root = subject(kind, sys.argv[1], rest)
        parts = everything(root)
        cyclonedx(root, parts, out)
        spdx(root, parts, out)


main()
