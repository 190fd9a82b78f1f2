#!/usr/bin/env bash
# Compare what benchmarks cost with the figures in figures.txt: allocations, bytes,
# and instructions as valgrind counts them. None of these depends on how busy or
# how fast the machine is; times do, and are not looked at.
#
#   figures.sh           fail where a figure is more than 5 % above the recorded one
#   figures.sh record    record the figures of this tree
#
# Instructions and bytes are of one architecture and one Go: elsewhere they are
# printed and not compared.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
file=.ci/figures.txt
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Pure Go: the same program whatever C library there is.
export CGO_ENABLED=0
version=$(go env GOVERSION)
here="$(cut -d. -f1,2 <<<"$version") $(go env GOOS)/$(go env GOARCH)"
recorded=$(sed -n 's/^# recorded with //p' "$file")

counted=yes
if ! command -v valgrind >/dev/null && ! .ci/deps.sh valgrind; then
	echo 'figures: no valgrind here: instructions are not counted'
	counted=no
	if [[ ${1:-} = record ]]; then
		exit 1
	fi
fi

# benchmark PACKAGE NAME N [COMMAND...]: run one N times, without anything that
# comes and goes by the clock.
benchmark() {
	local program="$tmp/${1//\//_}.test" name="^${2//\//\$/^}\$" n=$3
	shift 3
	GOMAXPROCS=1 GOGC=off GODEBUG=asyncpreemptoff=1 "$@" "$program" \
		-test.run='^$' -test.bench="$name" -test.benchtime="${n}x" -test.benchmem 2>&1
}

# instructions PACKAGE NAME N
instructions() {
	benchmark "$@" valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null |
		awk '/I +refs:/ { gsub(",", "", $NF); print $NF; found = 1 } END { exit !found }'
}

# measure PACKAGE NAME N: print the line for the file. What a program does before
# and after its benchmark is in two runs of different lengths alike.
measure() {
	local bytes allocs per=- few=$(($3 / 10)) first all
	read -r bytes allocs < <(benchmark "$@" | awk '/^Benchmark/ {
		for (i = 2; i <= NF; i++) { if ($i == "B/op") b = $(i-1); if ($i == "allocs/op") a = $(i-1) }
		print b, a
	}')
	if [[ -z ${allocs:-} ]]; then
		echo "figures: $1 has no benchmark $2" >&2
		return 1
	fi
	if [[ $counted = yes ]]; then
		first=$(instructions "$1" "$2" "$few")
		all=$(instructions "$1" "$2" "$3")
		per=$(((all - first) / ($3 - few)))
	fi
	printf '%s %s %s %s %s %s\n' "$1" "$2" "$3" "$allocs" "$bytes" "$per"
}

grep -v '^#' "$file" >"$tmp/recorded"
cut -d' ' -f1 "$tmp/recorded" | sort -u | while read -r package; do
	go test -c -o "$tmp/${package//\//_}.test" "$package" </dev/null
done

# One process for each processor; each leaves a file, so that the order stays.
export tmp counted
export -f benchmark instructions measure
n=0
# shellcheck disable=SC2016 # the arguments of each process
while read -r package name times _; do
	n=$((n + 1))
	printf '%03d %s %s %s\n' "$n" "$package" "$name" "$times"
done <"$tmp/recorded" | xargs -P "$(getconf _NPROCESSORS_ONLN)" -L 1 \
	bash -euo pipefail -c 'measure "$2" "$3" "$4" >"$tmp/measured.$1"' measure
cat "$tmp"/measured.* >"$tmp/measured"

if [[ ${1:-} = record ]]; then
	{
		sed -n '/^#/p' "$file" | sed "s,^# recorded with .*,# recorded with $here,"
		cat "$tmp/measured"
	} >"$tmp/new"
	cp "$tmp/new" "$file"
	git --no-pager diff --stat -- "$file"
	exit
fi

if [[ $here != "$recorded" ]]; then
	echo "figures: recorded with $recorded, and this is $here: only allocations are compared"
fi
paste -d' ' "$tmp/recorded" "$tmp/measured" | awk -v same="$([[ $here = "$recorded" ]] && echo 1)" '
	# over WHAT RECORDED NOW SLACK: what a pool had to be filled with, divided by few
	# operations, is a byte more or less.
	function over(what, was, now, slack) {
		if (now == "-" || now <= was * 1.05 + slack) return
		printf "figures: %s %s: %d %s, recorded %d\n", $1, $2, now, what, was
		bad++
	}
	BEGIN { printf "%-16s %-44s %10s %10s %14s\n", "package", "benchmark", "allocs/op", "B/op", "instructions" }
	{
		printf "%-16s %-44s %10s %10s %14s (%s)\n", $1, $2, $10, $11, $12, $6
		over("allocs/op", $4, $10, 0)
		if (same) { over("B/op", $5, $11, 16); over("instructions", $6, $12, 5) }
	}
	END {
		if (bad) print "figures: more than is recorded in .ci/figures.txt. If that is meant: make figures RECORD=1"
		exit bad > 0
	}'
