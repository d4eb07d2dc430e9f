"""The SDK with a host in memory."""

import json
import logging
import re
import unittest
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import TestCase

from skysail_provider import (
    API,
    INI,
    Denied,
    Internal,
    Invalid,
    Network,
    Node,
    NodeAddress,
    NotFound,
    Problem,
    ProviderError,
    Response,
    RetryAfter,
    Unavailable,
    absent_ok,
    allowed_sources,
    cache,
    event,
    internal_ips,
    is_ipv4,
    load_config,
    offset_pages,
    pages,
    parse_provider_id,
    request,
    require_texts,
    send_all,
    send_every,
    warning_event,
    worst,
)
from skysail_provider.host import Failure, RawRequest, RawResponse, log_through_host
from skysail_provider.testing import Answer, Event, Host, nodes, service

PACKAGE = Path(__file__).parents[1]
CLOUD = API("https://api.example.com/", credential="api")


def raised(call: Callable[[], object]) -> ProviderError:
    """The error of a call."""
    try:
        call()
    except ProviderError as error:
        return error
    raise AssertionError("nothing was raised")


def answering(answer: Answer | Failure) -> Host:
    """A host with a cloud that knows one answer."""
    return Host(cloud=lambda _request: answer)


class CloudConfig(TestCase):
    """Cloud-configs."""

    def test_an_ini_file_has_sections_comments_and_quoted_values(self) -> None:
        ini = INI(
            "[Global] ; the cloud\nendpoint = https://x#y # a comment\n"
            'name = "a \\"b\\" \\\\ #c" ; d\nempty =\n[Other]\nKEY=1\n'
        )
        self.assertEqual(ini.required("global", "Endpoint"), "https://x#y")
        self.assertEqual(ini.optional("Global", "name"), 'a "b" \\ #c')
        self.assertEqual(ini.optional("Global", "empty"), "")
        self.assertEqual(ini.optional("Other", "key"), "1")
        self.assertIsNone(ini.optional("Other", "absent"))
        self.assertEqual(ini.problems(), [])

    def test_each_problem_of_an_ini_file_names_line_and_key(self) -> None:
        ini = INI(
            '[Global\nnonsense\n[Global]\nkey = "open\nkey = "a" b\nkey = "a\\n"\n'
            "twice = 1\ntwice = 2\nunknown = 1\n"
        )
        ini.optional("Global", "twice")
        said = [f"{p.severity} {p.line} {p.key}: {p.message}" for p in ini.problems()]
        self.assertEqual(
            said,
            [
                "fatal 1 : a section ends with ]",
                "fatal 2 nonsense: expected key = value",
                "fatal 4 Global.key: the quote is not closed",
                "fatal 5 Global.key: text behind the closing quote",
                'fatal 6 Global.key: after \\ only " and \\ may stand',
                "fatal 8 Global.twice: stands here a second time",
                "fatal 9 Global.unknown: is not a key of this provider",
            ],
        )
        empty = INI("")
        empty.required("Global", "endpoint")
        empty.warn("Global", "old", "is old")
        self.assertEqual(
            empty.problems(),
            [
                Problem("fatal", 0, "Global.endpoint", "is required"),
                Problem("warning", 0, "Global.old", "is old"),
            ],
        )

    def test_a_fatal_problem_prevents_calls_and_a_warning_does_not(self) -> None:
        def parse(severity: Any) -> Callable[[str], tuple[int, Sequence[Problem]]]:
            return lambda text: (len(text), [Problem(severity, 2, "Global.old", "is old")])

        with Host("[Global]\nold = 1\n"):
            self.assertEqual(load_config(parse("warning")), 17)
            error = raised(lambda: load_config(parse("fatal")))
        self.assertIsInstance(error, Invalid)
        self.assertEqual(str(error), "cloud-config, line 2, Global.old: is old")

    def test_a_value_is_parsed_and_a_key_may_stand_several_times(self) -> None:
        ini = INI("[A]\nn = 7\nbad = x\nzone = a\nZone = b\n")
        self.assertEqual([ini.read("A", "n", int), ini.read("A", "absent", int)], [7, None])
        self.assertIsNone(ini.read("A", "bad", int))
        self.assertEqual(ini.list("A", "zone"), ["a", "b"])
        said = "\"x\": invalid literal for int() with base 10: 'x'"
        self.assertEqual(ini.problems(), [Problem("fatal", 3, "A.bad", said)])


class Requests(TestCase):
    """Requests."""

    def test_segments_and_parameters_are_escaped_and_an_empty_segment_is_refused(self) -> None:
        asked = (
            CLOUD.get("v1", "a/b", "..")
            .query("q", "x y&z+")
            .query("empty", "")
            .query_unless_empty("none", "")
            .query_unless_empty("n", 7)
        )
        url = "https://api.example.com/v1/a%2Fb/%2E%2E?q=x%20y%26z%2B&empty=&n=7"
        self.assertEqual(asked.url, url)
        # Without the parameter the list would be that of all objects.
        none: Any = None
        with self.assertRaisesRegex(TypeError, "the parameter name is neither a text nor a whole"):
            CLOUD.get("v1").query("name", none)
        self.assertIsInstance(raised(lambda: CLOUD.delete("servers", "")), Internal)
        self.assertEqual(API("https://x:8443/v1?a").origin, "https://x:8443")
        self.assertEqual(API("https://x?a").origin, "https://x")

    def test_the_fake_host_refuses_what_the_real_one_refuses(self) -> None:
        examples = json.loads((PACKAGE.parent / "requests.json").read_text())
        with answering(Answer({})) as host:

            def answer(example: dict[str, Any]) -> RawResponse | Failure:
                headers = [(name, value) for name, value in example.get("headers", [])]
                url = example["url"].replace("HOST", "cloud.test")
                credential = example.get("credential")
                raw = RawRequest(example["method"], url, headers, None, credential, 0)
                return host.send_all([raw])[0]

            self.assertTrue(examples["malformed"] and examples["sent"])
            for example in examples["malformed"]:
                with self.subTest(example):
                    refusal = answer(example)
                    assert isinstance(refusal, Failure)
                    self.assertEqual(refusal.case, "malformed")
            for example in examples["sent"]:
                with self.subTest(example):
                    self.assertIsInstance(answer(example), RawResponse)
            self.assertEqual(len(host.requests), len(examples["sent"]))

    def test_a_request_is_the_beginning_of_several(self) -> None:
        beginning = CLOUD.post("v1").header("X-A", "1")
        with answering(Answer({})) as host:
            send_every([beginning.json({"a": "ä"}), beginning.form({"a b": "c&d"}), beginning])
        form = "application/x-www-form-urlencoded; charset=utf-8"
        self.assertEqual(
            [(r.body, r.headers.get("content-type"), r.headers["x-a"]) for r in host.requests],
            [
                ('{"a":"\\u00e4"}', "application/json", "1"),
                ("a%20b=c%26d", form, "1"),
                ("", None, "1"),
            ],
        )
        self.assertEqual(host.requests[0].credential, "api")

    def test_a_request_without_a_response_is_the_error_of_its_cause(self) -> None:
        codes = {
            "forbidden": "denied",
            "limited": "unavailable",
            "malformed": "internal",
            "unreachable": "unavailable",
            "tls": "unavailable",
            "interrupted": "unavailable",
            "timeout": "unavailable",
            "too-large": "internal",
            "credential-refused": "denied",
            "credential-unavailable": "unavailable",
            "other": "unavailable",
        }
        for case, code in codes.items():
            with answering(Failure(case, "why")):
                for error in (raised(CLOUD.get("x").send), send_all([CLOUD.get("x")])[0]):
                    assert isinstance(error, ProviderError)
                    self.assertEqual(error.code, code, case)
                    self.assertRegex(str(error), "^GET https://api.example.com/x: .*: why$")
        with Host():
            self.assertEqual(raised(CLOUD.get("x").header("Cookie", "a").send).code, "internal")
            self.assertEqual(raised(CLOUD.get("x").send).code, "unavailable")

    def test_a_link_is_followed_within_the_origin_only(self) -> None:
        link = (
            '<http://c/v1/a?page=1>; rel="prev", </v1/a?f=a,b&page=2>; title=x; REL = "last next", '
            "</>; rel=up"
        )

        def cloud(sent: Any) -> Answer:
            more = "<http://c/v1/a?page=3>;rel=next" if sent.url.query else link
            return Answer([], headers={"link": more})

        api = API("http://c/v1", credential="api")
        with Host(cloud=cloud) as host:
            second = api.follow(api.get("a").send().next_link or "").send()
            api.follow(second.next_link or "").send()
            self.assertEqual(
                [(sent.url.geturl(), sent.credential) for sent in host.requests],
                [
                    (url, "api")
                    for url in (
                        "http://c/v1/a",
                        "http://c/v1/a?f=a,b&page=2",
                        "http://c/v1/a?page=3",
                    )
                ],
            )
        others = "http://evil/v1 https://c/v1 //evil/ http://c:81/ http://u@c/ http://c.evil/"
        for other in [*others.split(), ""]:
            self.assertIsInstance(raised(partial(api.follow, other)), Internal, other)


STATUSES: list[tuple[int, dict[str, str], str | None]] = [
    (200, {}, None),
    (204, {}, None),
    (301, {}, "internal"),
    (400, {}, "invalid"),
    (401, {}, "denied"),
    (402, {}, "exhausted"),
    (403, {}, "denied"),
    (404, {}, "not-found"),
    (408, {}, "unavailable"),
    (409, {}, "retry-after"),
    (410, {}, "not-found"),
    (413, {}, "invalid"),
    (413, {"retry-after": "5"}, "retry-after"),
    (418, {}, "internal"),
    (422, {}, "invalid"),
    (423, {}, "retry-after"),
    (425, {}, "unavailable"),
    (429, {}, "retry-after"),
    (500, {}, "unavailable"),
    (503, {}, "unavailable"),
    (503, {"retry-after": "5"}, "retry-after"),
    (507, {}, "exhausted"),
    (600, {}, "internal"),
    (200, {"content-type": "text/html; charset=utf-8"}, "unavailable"),
    (404, {"content-type": "TEXT/HTML"}, "unavailable"),
]


class Responses(TestCase):
    """Responses."""

    def test_each_status_means_an_error_or_a_success(self) -> None:
        for status, headers, code in STATUSES:
            with (
                self.subTest(status=status, headers=headers),
                answering(Answer(status=status, headers=headers, body="{}")),
            ):
                (result,) = send_all([CLOUD.get("x")])
                found = result.code if isinstance(result, ProviderError) else None
                self.assertEqual(found, code)
                # The status of `request` is the caller's business.
                response = request("GET", "https://api.example.com/x")
                self.assertEqual(response.status_code, status)
                self.assertEqual(response.ok, 200 <= status < 300)

    def test_a_wait_is_seconds_a_date_or_an_epoch_beside_the_clouds_date(self) -> None:
        date, epoch = "Fri, 27 Nov 2026 20:00:00 GMT", 1795809600

        def wait(status: int, headers: dict[str, str]) -> float:
            with answering(Answer(status=status, headers={"date": date, **headers})):
                error = raised(CLOUD.get("x").send)
            assert isinstance(error, RetryAfter)
            return error.seconds

        self.assertEqual(wait(429, {"retry-after": "7"}), 7)
        self.assertEqual(wait(503, {"retry-after": "Fri, 27 Nov 2026 20:01:00 GMT"}), 60)
        self.assertEqual(wait(429, {"x-ratelimit-reset": str(epoch + 3)}), 3)
        self.assertEqual(wait(429, {"ratelimit-reset": str((epoch - 3) * 1000)}), 0)
        self.assertEqual(wait(429, {"retry-after": "soon"}), 0)
        self.assertEqual(wait(429, {"retry-after": "9" * 5000}), 0)
        # A 503 that names no time is an outage, which is shown; "1.5" is no HTTP date.
        with answering(Answer(status=503, headers={"date": date, "retry-after": "1.5"})):
            self.assertIsInstance(raised(CLOUD.get("x").send), Unavailable)

    def test_an_error_names_request_status_and_what_the_cloud_said(self) -> None:
        def said(body: str | bytes) -> str:
            with answering(Answer(status=400, body=body)):
                return str(raised(CLOUD.get("x").query("secret", "1").send))

        start = "GET https://api.example.com/x: status 400"
        self.assertEqual(said('{"error": {"message": "no"}}'), f"{start}: no")
        self.assertEqual(said('{"badRequest": {"message": "no", "code": 1}}'), f"{start}: no")
        self.assertEqual(said('{"error": "no"}'), f"{start}: no")
        self.assertEqual(said(" text "), f"{start}: text")
        self.assertEqual(said(""), start)
        self.assertEqual(said("x" * 1000), f"{start}: {'x' * 300}…")
        self.assertEqual(said("[" * 100_000)[-10:], "[" * 9 + "…")
        self.assertEqual(said(b"\xff"), f"{start}: the body is not UTF-8")

    def test_a_header_that_comes_twice_has_both_values(self) -> None:
        pairs = [("link", "a"), ("date", "b"), ("link", "c")]
        headers = Response(RawResponse(200, pairs, b""), "GET x").headers
        self.assertEqual(headers["Link"], "a, c")
        self.assertIsNone(headers.get("absent"))

    def test_an_empty_body_null_and_what_is_no_json_are_errors_not_nothing(self) -> None:
        for body in ("", "null", "{", "[" * 100_000, b'"\xff"'):
            with answering(Answer(body=body)):
                response = CLOUD.get("x").send()
                self.assertIsInstance(raised(response.json), Internal, body[:10])

    def test_a_judge_finds_errors_that_a_status_does_not_tell(self) -> None:
        api = API("http://c", judge=lambda response: Denied("no") if response.json() else None)
        for body, found in ((["x"], "denied"), ([], None)):
            with answering(Answer(body)):
                (result,) = send_all([api.get("x")])
                code = result.code if isinstance(result, ProviderError) else None
                self.assertEqual(code, found)

    def test_only_an_absent_object_is_as_good_as_a_deleted_one(self) -> None:
        absent_ok(NotFound("x"))
        self.assertIsInstance(raised(lambda: absent_ok(Denied("x"))), Denied)

    def test_a_list_with_a_member_that_is_no_text_is_an_error(self) -> None:
        good = [{"id": "1", "name": "a"}]
        self.assertIs(require_texts(good, "servers", "id", "name"), good)

        def message(value: object) -> str:
            return str(raised(lambda: require_texts(value, "servers", "id", "name")))

        no_text = "not a text with at least one character"
        self.assertEqual(message({}), "servers: not a list")
        self.assertEqual(message([None]), "servers[0]: not an object")
        self.assertEqual(message([*good, {"id": 42, "name": "b"}]), f"servers[1].id: {no_text}")
        self.assertEqual(message([{"id": "1"}]), f"servers[0].name: {no_text}")
        self.assertEqual(message([{"id": "", "name": "a"}]), f"servers[0].id: {no_text}")


class Pages(TestCase):
    """Lists in pages."""

    def test_pages_end_at_an_empty_cursor_and_a_cursor_that_comes_twice_is_an_error(self) -> None:
        found = pages(lambda cursor: ([cursor], None if cursor else "a"))
        self.assertEqual(found, ["", "a"])
        error = raised(lambda: pages(lambda _cursor: ([""], "a")))
        self.assertEqual(str(error), 'the list does not end: cursor "a" came twice')

    def test_a_list_by_offset_is_read_again_where_an_entry_moved(self) -> None:
        def read(all: list[str], before: Callable[[int, list[str]], list[str]]) -> list[str]:
            count = 0

            def page(offset: int) -> tuple[list[str], int]:
                nonlocal all, count
                all = before(count, all)
                count += 1
                return all[offset : offset + 2], len(all)

            return offset_pages(lambda entry: entry, page)

        five = ["a", "b", "c", "d", "e"]
        self.assertEqual(read(five, lambda _page, all: all), five)
        self.assertEqual(read([], lambda _page, all: all), [])
        found = read(five, lambda page, all: all[1:] if page == 1 else all)
        self.assertEqual(found, five[1:])
        # Created in front and deleted at the end: the total stays, and "b" comes twice.
        shifted = ["new", "a", "b", "c", "d"]
        self.assertEqual(read(five, lambda page, all: shifted if page == 1 else all), shifted)
        growing = raised(lambda: read(["a", "b", "c"], lambda page, all: [*all, f"{page}"]))
        self.assertIsInstance(growing, Unavailable)
        endless = raised(lambda: offset_pages(str, lambda offset: ([offset], 2**40)))
        self.assertIsInstance(endless, Unavailable)


class TheHost(TestCase):
    """The functions of the host."""

    def test_the_worst_error_is_one_that_a_wait_does_not_mend(self) -> None:
        errors = [NotFound("a"), Unavailable("b"), RetryAfter("c", 1), RetryAfter("d", 9)]
        self.assertEqual(str(worst([*errors, Denied("e")])), "e")
        self.assertEqual(str(worst(errors)), "d")
        self.assertEqual(str(worst(errors[:1])), "a")
        self.assertIsNone(worst([]))

    def test_the_cache_keeps_json_and_a_change_that_loses_a_race_is_repeated(self) -> None:
        with Host():
            self.assertIsNone(cache.get("a"))
            self.assertEqual(cache.get_or("a", 1, lambda: {"b": "ä"}), {"b": "ä"})
            self.assertEqual(cache.get_or("a", 1, self.fail), {"b": "ä"})
            calls = 0

            def change(before: int | None) -> int:
                nonlocal calls
                calls += 1
                # Another call changes the value in between, once.
                if calls == 1:
                    cache.set("count", 10, 1)
                return (before or 0) + 1

            self.assertEqual(cache.update("count", 1, change), 11)
            self.assertEqual((calls, cache.get("count")), (2, 11))
            cache.delete("count")
            self.assertIsNone(cache.get("count"))
        with self.assertRaisesRegex(RuntimeError, r"with Host\(\)"):
            cache.get("a")

    def test_lines_of_logging_reach_the_host_with_their_fields(self) -> None:
        root = logging.getLogger()
        before = root.handlers[:], root.level
        self.addCleanup(lambda: root.handlers.__setitem__(slice(None), before[0]))
        self.addCleanup(root.setLevel, before[1])
        log_through_host()
        with Host() as host:
            logging.getLogger("cloud").warning("slow: %d s", 7, extra={"zone": "a"})
            logging.debug("\ud800")
        self.assertEqual(host.logs, ["warn slow: 7 s zone=a logger=cloud", "debug \ufffd"])

    def test_events_have_a_reason(self) -> None:
        with Host() as host:
            event("Made", "it is there")
            warning_event("Slow", "it takes long")
        self.assertEqual(
            host.events,
            [Event("Normal", "Made", "it is there"), Event("Warning", "Slow", "it takes long")],
        )


class Helpers(TestCase):
    """What most providers do."""

    def test_source_ranges_are_a_sorted_set_of_networks(self) -> None:
        def ranges(sources: list[str], families: Sequence[str] = ("IPv4",)) -> list[str]:
            asked = service(source_ranges=sources, ip_families=list(families))
            found: list[Network] = allowed_sources(asked)
            return [str(network) for network in found]

        given = [" 10.1.2.3/8", "10.0.0.0/8 ", "192.168.1.129/25", "2001:db8::1/32"]
        found = ["10.0.0.0/8", "192.168.1.128/25", "2001:db8::/32"]
        self.assertEqual(ranges(given), found)
        self.assertEqual(ranges([], ["IPv6", "IPv4"]), ["0.0.0.0/0", "::/0"])
        wrong = "10.0.0.0 10.0.0.0/33 10.1/8 010.0.0.0/8 0x0a.0.0.0/8 x/8 ::/129 10.0.0.0/255.0.0.0"
        for text in [*wrong.split(), ""]:
            self.assertIsInstance(raised(partial(ranges, [text])), Invalid, text)

    def test_addresses_of_a_family_are_found_and_texts_that_are_none_are_not(self) -> None:
        def ips(*addresses: str) -> list[NodeAddress]:
            return [NodeAddress("InternalIP", address) for address in addresses]

        found = nodes(
            Node("b", addresses=ips("fd00::1", "10.0.0.2", "10.0.0.3")),
            Node("a", addresses=ips("10.0.0.1")),
            Node("c"),
        )
        self.assertEqual(internal_ips(found, "IPv4"), ["10.0.0.1", "10.0.0.2"])
        self.assertEqual(internal_ips(found, "IPv6"), ["fd00::1"])
        wrong = "10.0.0 10.0.0.256 10.0.0.1. 10.0.0.1.1 010.0.0.1 01.2.3.4 a.b.c.d"
        for text in [*wrong.split(), ""]:
            self.assertFalse(is_ipv4(text), text)
        self.assertTrue(is_ipv4("255.0.10.199"))

    def test_a_provider_id_of_another_scheme_is_invalid(self) -> None:
        self.assertEqual(parse_provider_id("example", "example://a/b"), "a/b")
        for one in ("example://", "other://a", "a", ""):
            self.assertIsInstance(parse_provider_id("example", one), Invalid, one)

    def test_a_set_of_nodes_has_columns_and_whole_nodes(self) -> None:
        found = nodes(Node("b", provider_id="x://b"), Node("a", labels={"zone": "z"}))
        self.assertEqual((len(found), found.names()), (2, ["a", "b"]))
        self.assertEqual(found.provider_ids(), [None, "x://b"])
        self.assertEqual(found.label("zone"), ["z", None])
        self.assertEqual([node.name for node in found], ["a", "b"])
        self.assertNotEqual(found.digest(), nodes(Node("a")).digest())
        with self.assertRaises(IndexError):
            found[2]


class Readme(TestCase):
    """The example of the README."""

    def test_the_example_finds_machines_and_deletes_no_node_by_mistake(self) -> None:
        code = re.findall(r"(?<=```python\n).*?(?=```)", (PACKAGE / "README.md").read_text(), re.S)
        provider = ModuleType("provider")
        exec(code[0], vars(provider))
        identity, instances = provider.Identity(), provider.Instances()
        self.assertEqual(identity.describe().name, "example")
        text = "[Global]\nendpoint = https://api.example.com\n"
        self.assertEqual(identity.check_config(text), [])
        self.assertEqual(identity.origins(text), ["https://api.example.com"])
        self.assertEqual(len(identity.check_config("[Global]\nendpoitn = x\n")), 2)
        servers = [
            {"id": "1", "name": "a", "ip": "10.0.0.1", "zone": "z"},
            {"id": "2", "name": "renamed", "ip": "10.0.0.2", "zone": "z"},
        ]
        asked = nodes(
            Node("a"),
            Node("b", provider_id="example://2"),
            Node("c"),
            Node("d", provider_id="other://1"),
            Node("e", provider_id="example://9"),
        )
        with Host(text, lambda _request: Answer(servers)) as host:
            found = instances.describe(asked, "metadata")
            self.assertEqual(
                [one.code if isinstance(one, ProviderError) else one.provider_id for one in found],
                ["example://1", "example://2", "not-found", "invalid", "not-found"],
            )
            for wrong in ({"servers": servers}, [{**servers[0], "id": 1}], [{"id": "1"}], ["a"]):
                host.cloud = lambda _request, wrong=wrong: Answer(wrong)
                self.assertIsInstance(raised(lambda: instances.describe(asked, "state")), Internal)

    def test_the_test_of_the_readme_passes(self) -> None:
        code = re.findall(r"(?<=```python\n).*?(?=```)", (PACKAGE / "README.md").read_text(), re.S)
        example: dict[str, Any] = {"__name__": "example"}
        exec(code[0], example)
        exec(code[1].replace("from provider import Instances\n", ""), example)
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(example["MachinesTest"])
        result = unittest.TestResult()
        suite.run(result)
        self.assertEqual((result.testsRun, result.failures + result.errors), (1, []))


if __name__ == "__main__":
    unittest.main()
