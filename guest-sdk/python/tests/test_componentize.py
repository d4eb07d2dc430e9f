"""`skysail-componentize-py`."""

import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import TestCase

PROGRAM = Path(sys.executable).with_name("skysail-componentize-py")
IDENTITY = """
import skysail_provider
from skysail_provider import Info

class Identity(skysail_provider.Identity):
    def describe(self):
        return Info(name="example", version="1.0.0", description="An example")
    def check_config(self, text):
        return []
    def origins(self, text):
        return []
"""
INCOMPLETE = f"{IDENTITY}\nclass Machines(skysail_provider.Instances):\n    pass"
TWO = f"{IDENTITY}\nclass Other(Identity):\n    pass\n"
CONSTRUCTOR = "\n    def __init__(self):\n        skysail_provider.config()\n"
EARLY = f"from skysail_provider import config\nconfig()\n{IDENTITY}"
REFUSALS = [
    ("the module has no subclass of skysail_provider.Identity", "other = 1"),
    ("the module has more than one subclass of Identity: Identity, Other", TWO),
    ("SyntaxError: invalid syntax", "this is no Python"),
    ("No module named 'absent'", f"import absent\n{IDENTITY}"),
    ("NameError: name 'wrong' is not defined", f"{IDENTITY}\nwrong()"),
    ("the class Machines has no function describe", INCOMPLETE),
    ("the top level of a module runs once", EARLY),
    ("the top level of a module runs once", IDENTITY + CONSTRUCTOR),
]


class Componentize(TestCase):
    """The program."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="skysail-py-")))
        self.out = self.folder / "out.wasm"

    def run_with(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs the program."""
        return subprocess.run([PROGRAM, *arguments], text=True, capture_output=True, check=False)

    def made(self, name: str, source: str) -> subprocess.CompletedProcess[str]:
        """Runs the program on a provider."""
        (self.folder / name).write_text(source)
        return self.run_with(self.folder / name, self.out)

    def test_a_provider_becomes_a_component_with_the_interfaces_that_it_has(self) -> None:
        packages = self.folder / "packages"
        packages.mkdir()
        (packages / "needed.py").write_text("from skysail_provider import NotFound\n")
        (self.folder / "machines.py").write_text(
            "from needed import NotFound\n"
            "from skysail_provider import Instances\n"
            "class Machines(Instances):\n"
            "    def describe(self, nodes, detail):\n"
            "        return [NotFound(name) for name in nodes.names()]\n"
        )
        file = self.folder / "example.py"
        file.write_text(f"from machines import Machines\n{IDENTITY}")
        done = self.run_with("--path", packages, file, self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(
            done.stdout,
            r"\d+ bytes, exports identity, instances\nnext: skysail componentize .*out.wasm "
            r"out.wasm\n$",
        )
        # The preamble of a component.
        self.assertEqual(self.out.read_bytes()[:8], b"\0asm\x0d\0\1\0")

    def test_a_module_is_refused_with_its_reason(self) -> None:
        for reason, source in REFUSALS:
            with self.subTest(reason):
                done = self.made("refused.py", source)
                self.assertEqual(done.returncode, 1)
                self.assertIn("refused.py: ", done.stderr)
                self.assertIn(reason, done.stderr)
                self.assertFalse(self.out.exists())

    def test_a_name_that_is_no_module_is_refused(self) -> None:
        for name in ("no-module.py", "json.py", "skysail_entry.py"):
            with self.subTest(name):
                done = self.made(name, IDENTITY)
                self.assertEqual(done.returncode, 1)
                self.assertIn(name, done.stderr)
        self.assertEqual(self.run_with(self.folder / "absent.py", self.out).returncode, 1)

    def test_the_usage_is_printed(self) -> None:
        self.assertEqual(self.run_with().returncode, 2)
        self.assertIn("usage: skysail-componentize-py [-h]", self.run_with().stderr)
        self.assertEqual(self.run_with("--no-such-option").returncode, 2)
        self.assertRegex(self.run_with("--help").stdout, r"a subclass of\s+Identity")
