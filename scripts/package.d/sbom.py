"""scripts/package.d/sbom.py BIN DIR: writes DIR/sbom.cdx.json, the software bill of materials (CycloneDX 1.6) of the programs in DIR.

Its components are:
- the Swift packages of the modules in the linker's lists of files in BIN, with the versions of scripts/versions.txt;
- Swift itself, because its libraries are linked statically;
- the Debian packages in DIR/depends, because the programs load their shared libraries.

The file is the same for the same source and the same packages.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import uuid

PROGRAMS = ("apns-worker", "apns-simulator")


def versions():
    """Returns {name of the checkout's folder, in lower case: (version, licence, URL)}."""
    found = {}
    for line in pathlib.Path("scripts/versions.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, version, licence, url = line.split()
            found[name] = (version, licence, url)
    return found


def linked_modules(bin_path, program):
    """Returns the modules that are linked into the program."""
    text = (bin_path / f"{program}.product" / "Objects.LinkFileList").read_text()
    return set(re.findall(r"/([^/\s]+)\.build/", text))


def linked_packages(bin_path, modules):
    """Returns the names of the modules' packages, without this package. The source files of a module name its package."""
    packages = set()
    for module in sorted(modules):
        folder = bin_path / f"{module}.build"
        swift = folder / "sources"
        # A C module has a list for each source file, which begins with the path of that file.
        lists = [swift] if swift.exists() else sorted(folder.rglob("*.d"))
        source = re.search(r"(?:^|\s)(/\S+)", lists[0].read_text()) if lists else None
        if not source:
            sys.exit(f"sbom.py: {folder} does not name what {module} was compiled from")
        package = re.search(r"/checkouts/([^/]+)/", source[1])
        if package:
            packages.add(package[1].lower())
    return packages


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def debian_component(package):
    source, version, architecture = output(
        "dpkg-query", "--show", "--showformat=${source:Package} ${Version} ${Architecture}", package).split()
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', pathlib.Path("/etc/os-release").read_text(), re.M))
    distribution = f"{release['ID']}-{release['VERSION_ID']}"
    component = {
        "type": "library", "bom-ref": f"deb:{package}", "name": package, "version": version,
        "purl": f"pkg:deb/{release['ID']}/{package}@{version.replace(':', '%3A').replace('+', '%2B')}"
                f"?arch={architecture}&distro={distribution}",
        "properties": [{"name": "debian:source", "value": source}, {"name": "linkage", "value": "shared"}],
    }
    copyright_file = pathlib.Path(f"/usr/share/doc/{package}/copyright")
    if copyright_file.exists():
        # In the machine-readable format, the first stanza `Files:` is for the whole package.
        first = re.search(r"^Files:.*?^License: *(\S[^\n]*)", copyright_file.read_text(errors="replace"), re.M | re.S)
        if first:
            component["licenses"] = [{"license": {"name": first[1].strip()}}]
    return component


def swift_component(name, version, licence, url):
    source = url.removesuffix(".git")
    return {
        "type": "library", "bom-ref": f"swift:{name}", "name": name, "version": version,
        "licenses": [{"license": {"id": licence}}],
        "purl": f"pkg:swift/{source.removeprefix('https://')}@{version}",
        "externalReferences": [{"type": "vcs", "url": source}],
        "properties": [{"name": "linkage", "value": "static"}],
    }


def main():
    bin_path, directory = map(pathlib.Path, sys.argv[1:])
    named = versions()
    modules = set()
    for program in PROGRAMS:
        modules |= linked_modules(bin_path, program)
    # For each dependency, the first alternative without its version.
    libraries = [depend.split()[0] for depend in (directory / "depends").read_text().split(",")]
    packages = {"swift"} | linked_packages(bin_path, modules)
    unknown = packages - named.keys()
    if unknown:
        sys.exit(f"sbom.py: scripts/versions.txt does not name {', '.join(sorted(unknown))}")
    components = [swift_component(name, *named[name]) for name in sorted(packages)]
    components += [debian_component(name) for name in sorted(set(libraries))]
    version = (directory / "version").read_text().strip()
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
        # Derived from the contents, so that the same package has the same number.
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, version + json.dumps(components)).urn, "version": 1,
        "metadata": {
            "timestamp": date,
            "component": {
                "type": "application", "bom-ref": "apns-worker", "name": "apns-worker", "version": version,
                "licenses": [{"license": {"id": "MIT"}}],
            },
        },
        "components": components,
        "dependencies": [{"ref": "apns-worker", "dependsOn": [component["bom-ref"] for component in components]}],
    }
    (directory / "sbom.cdx.json").write_text(json.dumps(bill, indent=2) + "\n")


main()
