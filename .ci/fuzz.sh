#!/bin/sh
# Run every fuzz target for a while, one after the other.
#
#   fuzz.sh [TIME]     as for -fuzztime; 60s

set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
time=${1:-60s}
tries=5
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# fuzz FOLDER TARGET
fuzz() {
	try=1
	while
		printf '# %s %s for %s\n' "$1" "$2" "$time"
		! (cd "$1" && go test -run='^$' -fuzz="^$2\$" -fuzztime="$time" .) >"$out" 2>&1
	do
		if ! interrupted "$2" || [ "$try" = "$tries" ]; then
			cat "$out"
			return 1
		fi
		try=$((try + 1))
		echo 'the end of the time was taken for a failure; once more'
	done
	tail -n 2 "$out"
}

# interrupted TARGET: whether the end of the time is all that there is. Where go itself is
# interrupted just when it ends a run, it reports that as a failure of the target, with
# these words and no others. What a target fails with comes with an input or a line of
# the test, and is not overlooked.
interrupted() {
	awk -v failed="--- FAIL: $1 (" '
		index($0, failed) == 1 { fails++; after = NR + 1; next }
		NR == after { ended = $0 == "    context deadline exceeded"; next }
		/^ |^--- |^panic|^fatal|[Ff]ailing input/ { other = 1 }
		END { exit !(fails == 1 && ended && !other) }' "$out"
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
