"""Compares each request with Amazon's own models of the four APIs, which botocore has.

moto ignores parameters that it does not know, so that a misspelled one would have no effect.
"""

import io
import re
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from moto.core.utils import get_service_model

# The versions that the APIs of EC2, of the two generations of load balancers, and of the token
# service have in a request.
SERVICES = {"2016-11-15": "ec2", "2012-06-01": "elb", "2015-12-01": "elbv2", "2011-06-15": "sts"}


def refuse(environ):
    """The service of a request, and the answer to it if Amazon's models do not allow it."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    pairs = parse_qsl(body.decode(), keep_blank_values=True)
    form = dict(pairs)
    service = SERVICES.get(form.pop("Version", None))
    if service is None:
        return "ec2", document("ec2", "NoSuchVersion", "the request has no known version")
    model = get_service_model(service)
    action = form.pop("Action", "")
    if action not in model.operation_names:
        return service, document(service, "InvalidAction", f"{action!r} is no action of {service}")
    if len(form) + 2 != len(pairs):
        return service, document(service, "MalformedQueryString", f"{action} has a parameter twice")
    shape = model.operation_model(action).input_shape
    problems = list(Judge(service == "ec2").check(tree_of(form), shape, action)) if shape else list(form)
    return service, document(service, "InvalidParameterValue", "; ".join(problems)) if problems else None


def document(service, code, message):
    error = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return f"<Response><Errors>{error}</Errors></Response>" if service == "ec2" else f"<ErrorResponse>{error}</ErrorResponse>"


def tree_of(form):
    """`A.1.B=c` as {"A": {"1": {"B": "c"}}}."""
    tree = {}
    for name, value in form.items():
        *path, last = name.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return tree


class Judge:
    """Walks the parameters as botocore would have written them."""

    def __init__(self, is_ec2):
        self.is_ec2 = is_ec2

    def check(self, value, shape, path):
        kind = getattr(self, f"check_{shape.type_name}", None)
        return kind(value, shape, path) if kind else ()

    def name(self, member, shape):
        named = shape.serialization.get("name", member)
        if not self.is_ec2:
            return named
        return shape.serialization.get("queryName") or named[0].upper() + named[1:]

    def check_structure(self, value, shape, path):
        if not isinstance(value, dict):
            yield f"{path} has no members"
            return
        known = {self.name(member, of): (member, of) for member, of in shape.members.items()}
        for name, inner in value.items():
            if name in known:
                yield from self.check(inner, known[name][1], f"{path}.{name}")
            else:
                yield f"{path}.{name} is unknown"
        given = {known[name][0] for name in value if name in known}
        yield from (f"{path}.{member} is missing" for member in shape.required_members if member not in given)

    def check_list(self, value, shape, path):
        if not self.is_ec2:
            if value == "":
                return
            if not shape.serialization.get("flattened"):
                word = shape.member.serialization.get("name", "member")
                if not isinstance(value, dict) or list(value) != [word]:
                    yield f"{path} is no list of {word}"
                    return
                value = value[word]
        # Clients write the members in any order.
        if not isinstance(value, dict) or set(value) != {str(n + 1) for n in range(len(value))}:
            yield f"{path} does not count from 1"
            return
        for number, inner in value.items():
            yield from self.check(inner, shape.member, f"{path}.{number}")

    def check_string(self, value, shape, path):
        limits = shape.metadata
        if not isinstance(value, str):
            yield f"{path} is no text"
        elif limits.get("enum") and value not in limits["enum"]:
            yield f"{path} is {value!r}, none of {limits['enum']}"
        elif not limits.get("min", 0) <= len(value) <= limits.get("max", len(value)):
            yield f"{path} has {len(value)} characters"
        elif "pattern" in limits and not re.fullmatch(java(limits["pattern"]), value):
            yield f"{path} is {value!r}, not {limits['pattern']}"

    def check_integer(self, value, shape, path):
        limits = shape.metadata
        if not isinstance(value, str) or not re.fullmatch("-?[0-9]+", value):
            yield f"{path} is no number"
        elif not limits.get("min", int(value)) <= int(value) <= limits.get("max", int(value)):
            yield f"{path} is {value}, out of range"

    check_long = check_integer

    def check_boolean(self, value, shape, path):
        if value not in ("true", "false"):
            yield f"{path} is neither true nor false"


def java(pattern):
    """Amazon's patterns are those of Java, which has classes that Python lacks."""
    return pattern.replace(r"\p{L}\p{Z}\p{N}", r"\w\s")
