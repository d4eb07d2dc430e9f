"""`skysail-componentize-py PROVIDER OUT`: makes a component of a provider."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import subprocess
import sys
import tempfile
import traceback
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from . import host, interfaces

VERSION = "0.1.0"
"""The version of the contract."""

_INTERFACES = {
    "identity": interfaces.Identity,
    "instances": interfaces.Instances,
    "load-balancers": interfaces.LoadBalancers,
    "load-balancer-inventory": interfaces.LoadBalancerInventory,
    "routes": interfaces.Routes,
    "persistent-volume-labels": interfaces.PersistentVolumeLabels,
}


class Failure(Exception):
    """The provider cannot become a component."""


class Provider(NamedTuple):
    """A module, and the class of each interface that it has."""

    module: str
    classes: dict[str, str]


def load(file: Path, paths: list[Path]) -> Provider:
    """Loads a provider natively, to see which interfaces it has."""
    if not file.is_file() or file.suffix != ".py" or not file.stem.isidentifier():
        raise Failure("there is no such Python file; its name has to be that of a module")
    if file.stem in sys.stdlib_module_names or file.stem == "skysail_entry":
        raise Failure(f"rename the file: another module is called {file.stem}")
    sys.path[:0] = [str(path) for path in (file.parent, *paths)]
    host.use_host(None, host.BUILD)
    try:
        module = importlib.import_module(file.stem)
        classes = _classes(module)
        for name in classes.values():
            getattr(module, name)()
    except Failure:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).is_relative_to(file.parent)]
        place = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
        said = "".join(traceback.format_exception_only(error)).strip()
        raise Failure(f"{said}{place}") from error
    return Provider(file.stem, classes)


def _classes(module: ModuleType) -> dict[str, str]:
    found = {
        interface: [
            name
            for name, value in vars(module).items()
            if inspect.isclass(value) and issubclass(value, base) and value is not base
        ]
        for interface, base in _INTERFACES.items()
    }
    for interface, names in found.items():
        base = _INTERFACES[interface].__name__
        if len(names) > 1:
            raise Failure(f"the module has more than one subclass of {base}: {', '.join(names)}")
        for name in names:
            missing = sorted(getattr(module, name).__abstractmethods__)
            if missing:
                raise Failure(f"the class {name} has no function {', '.join(missing)}")
    if not found["identity"]:
        raise Failure(
            "the module has no subclass of skysail_provider.Identity; import the class where "
            "another module has it"
        )
    return {interface: names[0] for interface, names in found.items() if names}


def entry(provider: Provider) -> str:
    """The module whose classes componentize-py exports.

    A call begins after this module was loaded: its top level, the provider's and the constructors
    run once, when the component is built.
    """
    names = {interface: interface.replace("-", "_") for interface in provider.classes}
    exports = "".join(
        f"{_INTERFACES[interface].__name__} = glue.{names[interface]}(provider.{name}())\n"
        for interface, name in provider.classes.items()
    )
    return (
        "from skysail_provider import host\n"
        "host.use_host(None, host.BUILD)\n"
        f"import {provider.module} as provider\n"
        "from skysail_provider import component, glue\n"
        f"{exports}"
        "component.serve()\n"
    )


def world(provider: Provider) -> str:
    """The world of this component: the contract in the version of this SDK."""
    exports = "".join(f"  export {name};\n" for name in provider.classes if name != "identity")
    return (
        f"package skysail:provider@{VERSION};\nworld python {{\n  include provider;\n{exports}}}\n"
    )


def contract() -> Path:
    """The folder of the contract: that of an installed package, or of the repository."""
    installed = Path(str(resources.files("skysail_provider"))) / "wit"
    return installed if installed.is_dir() else Path(__file__).parents[4] / f"wit/v{VERSION}"


def make(file: Path, out: Path, paths: list[Path]) -> None:
    """Makes the component."""
    provider = load(file, paths)
    with tempfile.TemporaryDirectory(prefix="skysail-py-") as name:
        folder = Path(name)
        for wit in contract().iterdir():
            (folder / wit.name).write_bytes(wit.read_bytes())
        (folder / "python.wit").write_text(world(provider))
        (folder / "skysail_entry.py").write_text(entry(provider))
        sdk = Path(__file__).parents[1]
        # By rename: a reader of the file never sees a part of it.
        partial = out.with_name(f"{out.name}.partial")
        arguments = ["-q", "-d", name, "-w", "python", "componentize", "skysail_entry"]
        for path in (folder, file.parent, *paths, sdk):
            arguments += ["-p", str(path)]
        _componentize([*arguments, "-o", str(partial)])
        partial.rename(out)
    print(f"{out}: {out.stat().st_size} bytes, exports {', '.join(provider.classes)}")
    name = out.name.removesuffix(".wasm").removesuffix(".py")
    print(f"next: skysail componentize {out} {name}.wasm")


def _componentize(arguments: list[str]) -> None:
    """Runs componentize-py in a process of its own: it ends the process that it runs in."""
    # componentize-py would add the packages of the virtual environment.
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    done = subprocess.run(
        [sys.executable, "-c", "import componentize_py; componentize_py.script()", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise Failure(done.stdout.strip())


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="skysail-componentize-py",
        description="Makes a component of a provider in Python.",
        epilog="Make the component for Skysail of it, and try it: "
        "skysail componentize OUT example.wasm; skysail call example.wasm identity.describe",
    )
    parser.add_argument(
        "provider",
        type=Path,
        help="the module with the classes of the provider: a subclass of Identity, and of any of "
        "Instances, LoadBalancers, LoadBalancerInventory, Routes and PersistentVolumeLabels",
    )
    parser.add_argument("out", type=Path, help="the component of componentize-py")
    parser.add_argument(
        "--path",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder with packages of the provider, such as that of pip install --target",
    )
    arguments = parser.parse_args()
    try:
        paths = [path.resolve() for path in arguments.path]
        make(arguments.provider.resolve(), arguments.out.resolve(), paths)
    except Failure as failure:
        sys.exit(f"skysail-componentize-py: {arguments.provider}: {failure}")


if __name__ == "__main__":
    main()
