#!/bin/sh
# Print the path of a Chromium or Chrome, which the tests of the status page drive.
#
#   chromium.sh            the one in PATH; in CI, with an installation if need be
#   chromium.sh install    the same, with an installation anywhere
#
# Nobody who runs the tests by hand is given a browser unasked. Exit status 2 means that
# there is none to be had here, with the reason on stderr.

set -eu

find_browser() {
	for name in chromium chromium-browser google-chrome google-chrome-stable chrome \
		'/Applications/Chromium.app/Contents/MacOS/Chromium' '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome'; do
		if command -v "$name"; then
			exit
		fi
	done
}

none() {
	printf 'chromium: %s\n' "$1" >&2
	exit 2
}

find_browser
if [ "${1:-}" != install ] && [ -z "${CI:-}" ]; then
	none 'no chromium or chrome in PATH; .ci/chromium.sh install gets one'
fi
command -v apt-get >/dev/null || none 'no chromium or chrome in PATH, and no apt-get here to get one with'

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

# On Ubuntu the package is a wrapper around a snap, which no container can run. What is
# not a browser then is found out by who starts it.
install_browser() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 install --no-install-recommends chromium
}

# A fresh machine has no package lists.
{ install_browser || { as_root apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update && install_browser; }; } </dev/null >&2 ||
	none 'the package chromium cannot be installed here'
find_browser
echo 'chromium: there is still none after installing it' >&2
exit 1
