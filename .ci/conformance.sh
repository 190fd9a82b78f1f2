#!/bin/sh
# Run the published engine's own modules against the subscriber.
#
#   SGLANG_VERSION=0.5.23 conformance.sh [go test flags]
#
# Everything it downloads stays in .cache, which git ignores. A second run
# downloads nothing.

set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
version=${SGLANG_VERSION:-0.5.23}
cache=$root/.cache/conformance
requirements=internal/conformance/requirements.txt

.ci/deps.sh python
mkdir -p "$cache"

# A folder that was not finished is not used: each is made under another name.
venv=$cache/venv
if ! cmp -s "$requirements" "$venv/requirements.txt" || ! "$venv/bin/python" -c '' 2>/dev/null; then
	echo "conformance: making a virtual environment in $venv"
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --only-binary=:all: -r "$requirements"
	cp "$requirements" "$venv/requirements.txt"
fi
python=$venv/bin/python

# fetch WHAT FOLDER: download a wheel of the engine, without its dependencies.
# None of its compiled parts is used, so one that was made for another platform
# does as well.
fetch() {
	for platform in '' '--platform=manylinux_2_34_x86_64 --python-version=3.11 --implementation=cp'; do
		# shellcheck disable=SC2086 # words
		if "$python" -m pip download --quiet --disable-pip-version-check --no-input \
			--no-deps --only-binary=:all: $platform --dest "$2" "$1" 2>"$2/errors"; then
			return
		fi
	done
	# It lists every version there is.
	cut -c 1-200 "$2/errors" >&2
	return 1
}

engine=$cache/sglang-$version
if [ ! -d "$engine" ]; then
	tmp=$(mktemp -d "$cache/download.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	echo "conformance: downloading sglang $version"
	if ! fetch "sglang==$version" "$tmp"; then
		echo "conformance: sglang $version is not served, taking the newest"
		fetch sglang "$tmp"
	fi
	"$python" - "$tmp"/sglang-*.whl "$tmp/unpacked" <<'PY'
import sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [n for n in wheel.namelist() if n.endswith((".py", "METADATA"))])
PY
	mv "$tmp/unpacked" "$engine"
fi
echo "conformance: $(sed -n 's/^Name: //p;s/^Version: //p' "$engine"/sglang-*.dist-info/METADATA | tr '\n' ' ')in $engine"

PLIMSOLL_PYTHON=$python PLIMSOLL_SGLANG=$engine \
	go test -tags=conformance -count=1 -v -timeout=5m "$@" ./internal/conformance
