#!/bin/sh
# Have the clients that people use talk to the example gateway.
#
#   clients.sh [go test flags]
#
# LOADGEN=1: a load generator too, which is a gigabyte to download. All of it stays
# in .cache, which git ignores; a second run downloads nothing.

set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
.ci/deps.sh python

# venv NAME: make a virtual environment of what is in requirements/NAME.txt, unless
# it is there. One that was not finished is made anew.
venv() {
	folder=$root/.cache/clients/$1
	requirements=examples/internal/clients/requirements/$1.txt
	if ! cmp -s "$requirements" "$folder/requirements.txt" || ! "$folder/bin/python" -c '' 2>/dev/null; then
		echo "clients: making a virtual environment in $folder"
		rm -rf "$folder"
		python3 -m venv "$folder"
		"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --retries=5 -r "$requirements"
		cp "$requirements" "$folder/requirements.txt"
	fi
}

mkdir -p .cache/clients
venv openai
PLIMSOLL_OPENAI=$folder
export PLIMSOLL_OPENAI
if [ -n "${LOADGEN:-}" ]; then
	venv aiperf
	PLIMSOLL_AIPERF=$folder
	export PLIMSOLL_AIPERF
fi
cd examples
go test -tags=clients -count=1 -v -timeout=10m "$@" ./internal/clients
