"""Makes torch's CUDA wheel importable where none of the CUDA libraries is installed.

Run with the interpreter of the environment that holds torch. For every shared library that torch's own libraries ask
for and that neither they nor the system have, a stub is built beside them which defines each symbol imported from it,
under the version that is asked for. A stub's functions return 0; the runtime reports that there is no device. Needs
gcc and readelf.
"""

import collections
import pathlib
import re
import subprocess
import sysconfig
import tempfile

NO_DEVICE = {
    "cudaGetDeviceCount": "int cudaGetDeviceCount(int *n) { if (n) *n = 0; return 100; }",
    "cudaGetErrorString": 'const char *cudaGetErrorString(int e) { return "no device: stub library"; }',
    "cudaGetErrorName": 'const char *cudaGetErrorName(int e) { return "stub"; }',
    "cudaDriverGetVersion": "int cudaDriverGetVersion(int *v) { if (v) *v = 0; return 0; }",
    "cudaRuntimeGetVersion": "int cudaRuntimeGetVersion(int *v) { if (v) *v = 13000; return 0; }",
}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(library):
    """(section, binding, name, version) of each dynamic symbol; the section of an import is UND."""
    for line in output("readelf", "-W", "--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0] != "Num:" and fields[0].endswith(":"):
            name, _, version = fields[7].partition("@")
            yield fields[6], fields[4], name, version.lstrip("@")


def versions_wanted(library):
    """(file, version) of each version that the library asks another file for."""
    file = None
    for line in output("readelf", "-W", "-V", library).splitlines():
        if match := re.search(r"File: (\S+)", line):
            file = match[1]
        if (match := re.search(r"Name: (\S+)\s+Flags", line)) and file:
            yield file, match[1]


def main():
    package = pathlib.Path(sysconfig.get_path("purelib")) / "torch"
    folder = package / "lib"
    libraries = sorted(folder.glob("*.so*")) + sorted(package.glob("_C*.so"))
    wanted, defined, imported = set(), set(), collections.defaultdict(set)
    versions = collections.defaultdict(set)
    for library in libraries:
        wanted |= set(re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", library)))
        for file, version in versions_wanted(library):
            versions[file].add(version)
        for section, binding, name, version in symbols(library):
            if section != "UND":
                defined.add(name)
            elif binding != "WEAK":
                imported[version].add(name)

    system = dict(re.findall(r"^\s*(\S+) .*=> (\S+)$", output("ldconfig", "-p"), re.MULTILINE))
    missing = sorted(wanted - {library.name for library in libraries} - set(system))
    for name in wanted & set(system):
        defined |= {symbol for section, _, symbol, _ in symbols(system[name]) if section not in ("UND", "Ndx")}
    # What is imported without a version could be from any of the missing libraries: the first gets all of it.
    loose = {name for name in imported[""] - defined if not name.startswith(("Py", "_Py"))}
    for number, name in enumerate(missing):
        build(folder / name, {v: imported.get(v, set()) for v in versions[name]}, loose if number == 0 else set())


def build(path, by_version, loose):
    """A library that defines the symbols of each version and the loose ones."""
    names = set().union(loose, *by_version.values())
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "stub.c"), pathlib.Path(scratch, "stub.map")
        source.write_text("".join(NO_DEVICE.get(n, f"void *{n}(void) {{ return 0; }}") + "\n" for n in sorted(names)))
        block = "{version} {{ {symbols} }};\n".format
        lines = (block(version=v, symbols=f"global: {'; '.join(sorted(s))};" if s else "") for v, s in by_version.items())
        script.write_text("".join(lines))
        command = ["gcc", "-shared", "-fPIC", "-fno-builtin", "-w", "-o", path, source, f"-Wl,-soname,{path.name}"]
        subprocess.run(command + ([f"-Wl,--version-script={script}"] if by_version else []), check=True)


main()
