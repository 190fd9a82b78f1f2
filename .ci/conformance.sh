#!/bin/sh
# Run the published engines' own modules against this module.
#
#   conformance.sh [go test flags]
#
# SGLANG_VERSION, TOKENSPEED_VERSION and VLLM_VERSIONS choose other versions. The
# last is a list, the newest first: the layout of vLLM's outputs has changed, and
# the golden files have each.
#
# Everything it downloads stays in .cache, which git ignores. A second run
# downloads nothing.

set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
cache=$root/.cache/conformance
requirements=internal/conformance/requirements.txt

.ci/deps.sh python
mkdir -p "$cache"

# A network has its bad moments.
export PIP_DEFAULT_TIMEOUT=60 PIP_RETRIES=5

# again COMMAND...: run a command up to three times, until it succeeds.
again() {
	"$@" || { sleep 5 && "$@"; } || { sleep 15 && "$@"; }
}

# A folder that was not finished is not used: each is made under another name.
venv=$cache/venv
if ! cmp -s "$requirements" "$venv/requirements.txt" || ! "$venv/bin/python" -c '' 2>/dev/null; then
	echo "conformance: making a virtual environment in $venv"
	rm -rf "$venv"
	python3 -m venv "$venv"
	again "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --only-binary=:all: -r "$requirements"
	cp "$requirements" "$venv/requirements.txt"
fi
python=$venv/bin/python

tmp=$(mktemp -d "$cache/download.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# fetch WHAT: download a wheel of an engine into $tmp, without its dependencies.
# None of its compiled parts is used, so one that was made for another platform
# does as well.
fetch() {
	for platform in '' '--platform=manylinux_2_34_x86_64 --platform=manylinux_2_28_x86_64 --platform=manylinux1_x86_64 --python-version=3.11 --implementation=cp'; do
		# shellcheck disable=SC2086 # words
		if "$python" -m pip download --quiet --disable-pip-version-check --no-input \
			--no-deps --only-binary=:all: $platform --dest "$tmp" "$1" 2>"$tmp/errors"; then
			return
		fi
	done
	# It lists every version there is.
	cut -c 1-200 "$tmp/errors" >&2
	return 1
}

# unpack FOLDER: unpack the wheel in $tmp.
unpack() {
	"$python" - "$tmp"/*.whl "$tmp/unpacked" <<'PY'
import sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [n for n in wheel.namelist() if n.endswith((".py", "METADATA"))])
PY
	rm "$tmp"/*.whl
	mv "$tmp/unpacked" "$1"
}

# engine NAME VERSION: have that version of an engine, or the newest where it is
# not served. Sets folder.
engine() {
	folder=$cache/$1-$2
	if [ ! -d "$folder" ]; then
		echo "conformance: downloading $1 $2"
		if ! again fetch "$1==$2"; then
			echo "conformance: $1 $2 is not served, taking the newest"
			again fetch "$1"
		fi
		unpack "$folder"
	fi
	tell
}

# parts NAME VERSION: have the Python part of that version of an engine whose
# wheel has hundreds of MB of other things. Sets folder.
parts() {
	folder=$cache/$1-$2
	if [ ! -d "$folder" ]; then
		echo "conformance: downloading the Python part of $1 $2"
		if again "$python" internal/conformance/fetch.py "$1==$2" "$tmp/parts" "$1/*.py"; then
			mv "$tmp/parts" "$folder"
		else
			echo "conformance: that does not work here, downloading all of it"
			rm -rf "$tmp/parts"
			again fetch "$1==$2"
			unpack "$folder"
		fi
	fi
	tell
}

tell() {
	echo "conformance: $(sed -n 's/^Name: //p;s/^Version: //p' "$folder"/*.dist-info/METADATA | tr '\n' ' ')in $folder"
}

engine sglang "${SGLANG_VERSION:-0.5.23}"
PLIMSOLL_SGLANG=$folder
engine tokenspeed "${TOKENSPEED_VERSION:-0.1.1}"
PLIMSOLL_TOKENSPEED=$folder
PLIMSOLL_VLLM=
for version in ${VLLM_VERSIONS:-0.33.0 0.10.2 0.8.5}; do
	parts vllm "$version"
	PLIMSOLL_VLLM=${PLIMSOLL_VLLM:+$PLIMSOLL_VLLM:}$folder
done

PLIMSOLL_PYTHON=$python
export PLIMSOLL_PYTHON PLIMSOLL_SGLANG PLIMSOLL_TOKENSPEED PLIMSOLL_VLLM
go test -tags=conformance -count=1 -v -timeout=15m "$@" ./internal/conformance
