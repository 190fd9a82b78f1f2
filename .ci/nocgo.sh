#!/bin/sh
# Build and test without cgo what there is without it, in the module in this
# folder: all that is not made of the ZeroMQ binding. Tests that use the
# subscriber are compiled and not run, since all that it then does is say so,
# which its own tests look at. Tests that have nothing to do with cgo and take long
# leave themselves out when they are asked to be short: those that drive a browser.

set -eu

export CGO_ENABLED=0
list=$(go list -e -test -f '{{.ImportPath}}|{{.ForTest}}|{{range .Deps}}{{.}} {{end}}' ./...)

# pick WHAT: print the packages that can be built, compiled with their tests but
# not run, or tested.
pick() {
	printf '%s\n' "$list" | awk -F '|' -v what="$1" '
		{
			of = $1
			variant = $2 != "" || of ~ /\.test$/
			if ($2 != "") of = $2           # the package, made for a test
			else sub(/\.test$/, "", of)     # the program that runs its tests
			if (!variant) packages[++n] = of
			binding = (" " $3) ~ " github.com/pebbe/zmq4 "
			if (binding && !variant) unbuilt[of]
			if (binding) untested[of]
			if ((" " $3) ~ "/snapshot/zmqsub " && of !~ "/snapshot/zmqsub$") unrun[of]
		}
		END {
			for (i = 1; i <= n; i++) {
				p = packages[i]
				if (what == "build" && !(p in unbuilt)) print p
				if (what == "compile" && !(p in untested) && (p in unrun)) print p
				if (what == "test" && !(p in untested) && !(p in unrun)) print p
				if (what == "nothing" && (p in unbuilt)) print p
			}
		}'
}

# with WHAT COMMAND...: run a command on the packages, if there are any.
with() {
	packages=$(pick "$1")
	shift
	# shellcheck disable=SC2086 # words
	[ -z "$packages" ] || "$@" $packages
}

with nothing printf 'not without cgo: %s\n'
# -o: a lone program would be written to this folder.
with build go build -o /dev/null
with compile go test -run='^$'
with test go test -short
