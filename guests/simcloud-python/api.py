"""The API of the simulated cloud, as far as the provider uses it."""

from typing import Any

from skysail_provider import API, INI, Problem, Request, cache, load_config, pages, require_texts
from skysail_provider.text import quoted

# The maximum of the API.
PAGE_ENTRIES = 500
# Zones rarely change.
ZONES_TTL = 10 * 60

CLUSTER_TAG = "skysail-cluster"

Record = dict[str, Any]
"""A record of the cloud, as `list_all` checked it."""


def parse(text: str) -> tuple[API, list[Problem]]:
    """Reads the cloud-config: `[Global] endpoint = URL`.

    A zone, which the provider in Rust needs for upstream's Zones, is accepted.
    """
    ini = INI(text)
    endpoint = ini.required("Global", "endpoint")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        wrong = f"{quoted(endpoint)} is not a URL such as http://127.0.0.1:8088"
        ini.refuse("Global", "endpoint", wrong)
    ini.optional("Global", "zone")
    return API(endpoint, credential="api"), list(ini.problems())


def load() -> API:
    """The cloud of this call."""
    return load_config(parse)


def list_all(request: Request, *texts: str) -> list[Record]:
    """Every record that matches the request's filters; these members of each are texts."""

    def page(cursor: str) -> tuple[list[Record], str | None]:
        response = request.query("limit", PAGE_ENTRIES).query_unless_empty("cursor", cursor).send()
        body = response.json()
        # An absent list must not read as an empty one: nothing would exist.
        items = require_texts(body.get("items"), response.message("items"), *texts)
        return items, body.get("next")

    return pages(page)


def zones(cloud: API) -> dict[str, str]:
    """The region of each zone."""

    def read() -> dict[str, str]:
        listed = list_all(cloud.get("v1", "zones"), "name", "region")
        return {zone["name"]: zone["region"] for zone in listed}

    found: dict[str, str] = cache.get_or("zones", ZONES_TTL, read)
    return found


def owned(cloud: API, kind: str, cluster: str, name: str | None = None) -> list[Record]:
    """The records that the cluster owns: of all names, or of one."""
    request = cloud.get("v1", kind).query("tag", f"{CLUSTER_TAG}={cluster}")
    return list_all(request.query_unless_empty("name", name), "id")
