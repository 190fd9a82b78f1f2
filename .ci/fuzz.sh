#!/bin/sh
# Run every fuzz target for a while, one after the other.
#
#   fuzz.sh [TIME]     as for -fuzztime; 60s

set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
time=${1:-60s}
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# fuzz FOLDER TARGET
fuzz() {
	printf '# %s %s for %s\n' "$1" "$2" "$time"
	if (cd "$1" && go test -run='^$' -fuzz="^$2\$" -fuzztime="$time" .) >"$out" 2>&1; then
		tail -n 2 "$out"
		return 0
	fi
	cat "$out"
	# The end of the time can hit a worker in the middle of an input, which
	# go then calls a failure of the target. A real one leaves its input.
	grep -q 'context deadline exceeded' "$out" && ! grep -q 'Failing input written' "$out"
}

cd "$root" || exit 1
failed=0 ran=0
folders=$(find . -name '.?*' -prune -o -name '*_test.go' -print0 | xargs -0 grep -l '^func Fuzz' | sed 's,/[^/]*$,,' | sort -u)
for folder in $folders; do
	if ! targets=$(cd "$folder" && go test -list='^Fuzz' .); then
		printf '%s\n' "$targets"
		failed=$((failed + 1))
		continue
	fi
	for target in $(printf '%s\n' "$targets" | grep '^Fuzz'); do
		ran=$((ran + 1))
		fuzz "$folder" "$target" || failed=$((failed + 1))
	done
done
printf 'fuzz targets: %d passed, %d failed\n' "$((ran - failed))" "$failed"
[ "$failed" = 0 ] && [ "$ran" != 0 ]
