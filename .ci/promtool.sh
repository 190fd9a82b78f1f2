#!/bin/sh
# Print the path of promtool, which checks Prometheus's rules: the one in PATH, or
# the one of Debian's package prometheus. That is unpacked into .cache and not
# installed, since it would bring a server that starts by itself.
#
# Exit status 2 means that it is not to be had here, with the reason on stderr.

set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cache=$root/.cache/promtool

none() {
	printf 'promtool: %s; install Prometheus to have its rules checked\n' "$1" >&2
	exit 2
}

if command -v promtool; then
	exit
fi
if [ -x "$cache/promtool" ]; then
	echo "$cache/promtool"
	exit
fi
for tool in apt-get dpkg-deb; do
	command -v "$tool" >/dev/null || none "not in PATH, and no $tool here to get it with"
done

mkdir -p "$root/.cache"
tmp=$(mktemp -d "$root/.cache/promtool.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

# As its own user apt could not write into a folder of ours, and says so.
download() { apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 download prometheus; }

# A fresh machine has no package lists.
update() {
	if [ "$(id -u)" = 0 ]; then
		apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
	elif command -v sudo >/dev/null; then
		sudo -n apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
	fi
}

{ download || { update && download; }; } </dev/null >log 2>&1 || {
	cat log >&2
	none "the package prometheus cannot be downloaded"
}
dpkg-deb --extract prometheus*.deb unpacked
mkdir -p "$cache"
mv -f unpacked/usr/bin/promtool "$cache/promtool"
echo "$cache/promtool"
