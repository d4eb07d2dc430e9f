#!/usr/bin/env python3
"""Trims Hetzner's OpenAPI document to the paths that the provider and its tests use.

Usage: trim-hetzner-openapi.py <hcloud.json >hetzner-openapi.json
"""
import json
import re
import sys

KEPT = re.compile(
    r"/(actions|locations|load_balancer_types|server_types|images)(/\{id\})?"
    r"|/(servers|networks|load_balancers|certificates)(/\{id\})?"
    r"|/(networks|load_balancers)/\{id\}/actions/[a-z_]+"
    r"|/servers/\{id\}/actions/(attach_to_network|detach_from_network|poweroff|poweron|shutdown)"
)
PROSE = {"description", "summary", "example", "examples", "tags", "externalDocs", "operationId", "x-codeSamples"}


def plain(node, names=False):
    """The node without prose; `names` says that its keys are names of properties."""
    if isinstance(node, dict):
        return {key: plain(value, key in ("properties", "paths", "schemas") and not names)
                for key, value in node.items() if names or key not in PROSE}
    return [plain(entry) for entry in node] if isinstance(node, list) else node


def references(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value.rsplit("/", 1)[1]
            else:
                yield from references(value)
    elif isinstance(node, list):
        for entry in node:
            yield from references(entry)


document = json.load(sys.stdin)
paths = {path: entry for path, entry in document["paths"].items() if KEPT.fullmatch(path)}
for entry in paths.values():
    entry.pop("servers", None)
schemas, found = document["components"]["schemas"], {}
queue = list(references(paths))
while queue:
    name = queue.pop()
    if name not in found:
        found[name] = schemas[name]
        queue.extend(references(schemas[name]))
trimmed = {
    "openapi": document["openapi"],
    "info": {"title": "Hetzner Cloud API, trimmed", "version": document["info"]["version"]},
    "servers": [{"url": "/"}],
    "security": document["security"],
    "paths": plain(paths, True),
    "components": {
        "schemas": plain(dict(sorted(found.items())), True),
        "securitySchemes": document["components"]["securitySchemes"],
    },
}
for entry in trimmed["paths"].values():
    for operation in entry.values():
        for answer in operation["responses"].values():
            # OpenAPI requires it.
            answer["description"] = ""
json.dump(trimmed, sys.stdout, indent=1, sort_keys=True)
print()
