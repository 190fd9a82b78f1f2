"""Unpack some files of a wheel without downloading it.

    python fetch.py REQUIREMENT DIR PATTERN...

pip says where the wheel is, and the parts of it that hold the files are read by
HTTP range requests. An engine's wheel has some hundred MB of compiled code that
no test needs. The package's METADATA is unpacked too.
"""

import argparse
import fnmatch
import io
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import urllib.request
import zipfile

# Where there is no wheel for this platform, one for another does as well.
ELSEWHERE = ["--implementation=cp", "--python-version=3.11"]
ELSEWHERE += [f"--platform={p}_x86_64" for p in ("manylinux_2_28", "manylinux_2_31", "manylinux_2_34", "manylinux1")]
READ_AHEAD = 1 << 18
PATIENCE = 60  # seconds, with a server that says nothing


def locate(requirement):
    """Return the address of the wheel that pip would install."""
    with tempfile.TemporaryDirectory() as nowhere:
        for platform in [], [*ELSEWHERE, f"--target={nowhere}"]:
            command = "install --dry-run --ignore-installed --no-deps --only-binary=:all: --use-feature=fast-deps"
            command += " --disable-pip-version-check --no-input --quiet --report=-"
            pip = subprocess.run(
                [sys.executable, "-m", "pip", *command.split(), *platform, requirement], capture_output=True, text=True
            )
            if pip.returncode == 0:
                return json.loads(pip.stdout)["install"][0]["download_info"]["url"]
    raise SystemExit(pip.stderr[-500:])


class Remote(io.RawIOBase):
    """A file on a server that answers range requests."""

    def __init__(self, url):
        self.url, self.position = url, 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
            self.size = int(answer.headers["Content-Length"])
            if answer.headers.get("Accept-Ranges") != "bytes":
                raise SystemExit("the server does not answer range requests")

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.position

    def seek(self, offset, whence=io.SEEK_SET):
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def readinto(self, buffer):
        end = min(self.position + len(buffer), self.size)
        if end <= self.position:
            return 0
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={self.position}-{end - 1}"})
        with urllib.request.urlopen(request) as answer:
            if answer.status != 206:
                raise SystemExit(f"the server answers a range request with {answer.status}")
            data = answer.read(len(buffer))
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("requirement")
    args.add_argument("dir", type=pathlib.Path)
    args.add_argument("pattern", nargs="+")
    args = args.parse_args()
    socket.setdefaulttimeout(PATIENCE)
    with zipfile.ZipFile(io.BufferedReader(Remote(locate(args.requirement)), READ_AHEAD)) as wheel:
        patterns = [*args.pattern, "*.dist-info/METADATA"]
        wanted = [i for i in wheel.infolist() if any(fnmatch.fnmatch(i.filename, p) for p in patterns)]
        for info in sorted(wanted, key=lambda i: i.header_offset):
            wheel.extract(info, args.dir)


if __name__ == "__main__":
    main()
