#!/bin/sh
# Test fuzz.sh with a go that is a script: what it says, and how it ends, is in files
# named after the run.

set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

mkdir -p "$tmp/repo/.ci" "$tmp/repo/wire" "$tmp/bin"
cp "$here/fuzz.sh" "$tmp/repo/.ci/"
printf 'func FuzzWire(f *testing.F) {\n' >"$tmp/repo/wire/fuzz_test.go"
cat >"$tmp/bin/go" <<'GO'
#!/bin/sh
case $* in *-list*) echo FuzzWire; exit ;; esac
runs=$(($(cat "$SAYS/runs") + 1))
echo "$runs" >"$SAYS/runs"
[ -e "$SAYS/$runs" ] || runs=last
cat "$SAYS/$runs"
grep -q '^ok' "$SAYS/$runs"
GO
chmod +x "$tmp/bin/go"

good='fuzz: elapsed: 5s, execs: 1000 (0/sec), new interesting: 0 (total: 9)
PASS
ok  	wire	5.1s'
late='fuzz: elapsed: 5s, execs: 1000 (0/sec), new interesting: 0 (total: 9)
--- FAIL: FuzzWire (5.01s)
    context deadline exceeded
FAIL
exit status 1
FAIL	wire	5.1s'
bad='fuzz: elapsed: 1s, execs: 1000 (0/sec), new interesting: 0 (total: 9)
fuzz: minimizing 30-byte failing input file
--- FAIL: FuzzWire (1.01s)
    --- FAIL: FuzzWire (0.00s)
        fuzz_test.go:9: context deadline exceeded
    
    Failing input written to testdata/fuzz/FuzzWire/771e938e4458e983
    To re-run:
    go test -run=FuzzWire/771e938e4458e983
FAIL
exit status 1
FAIL	wire	1.1s'
seed='--- FAIL: FuzzWire (0.01s)
    --- FAIL: FuzzWire/seed#0 (0.00s)
        fuzz_test.go:9: context deadline exceeded
FAIL
exit status 1
FAIL	wire	0.1s'
broken='fuzz_test.go:1:1: context deadline exceeded
FAIL	wire [build failed]'

# says NAME WANT RUNS OUTPUT...: what go says, run by run, and the last one for ever; WANT
# is ok or fail, after so many runs.
says() {
	name=$1 want=$2 runs=$3
	shift 3
	export SAYS="$tmp/$name"
	mkdir "$SAYS"
	echo 0 >"$SAYS/runs"
	n=0
	for output; do
		n=$((n + 1))
		printf '%s\n' "$output" >"$SAYS/$n"
		cp "$SAYS/$n" "$SAYS/last"
	done
	got=ok
	told=$(PATH=$tmp/bin:$PATH "$tmp/repo/.ci/fuzz.sh" 5s 2>&1) || got=fail
	if [ "$got $(cat "$SAYS/runs")" = "$want $runs" ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf -- '--- FAIL: %s: %s after %s runs, want %s after %s\n%s\n' "$name" "$got" "$(cat "$SAYS/runs")" "$want" "$runs" "$told"
	fi
}

says 'nothing found' ok 1 "$good"
says 'interrupted, then well' ok 2 "$late" "$good"
says 'interrupted, then something found' fail 2 "$late" "$bad"
says 'interrupted every time' fail 5 "$late"
says 'something found that has the same words' fail 1 "$bad"
says 'a seed that fails with the same words' fail 1 "$seed"
says 'a target that does not compile' fail 1 "$broken"

printf '%s: %d passed, %d failed\n' fuzz_test "$passed" "$failed"
[ "$failed" = 0 ]
