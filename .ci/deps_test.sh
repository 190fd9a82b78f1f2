#!/bin/sh
# Test deps.sh on machines that are not here: each case runs it with a PATH of
# its own, in which package managers are scripts that write down how they were
# called and then bring what they were asked for.

# shellcheck disable=SC2016 # the fakes' own variables

set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

# Print a script.
script() {
	printf '#!/bin/sh\n%s\n' "$2" >"$1"
	chmod +x "$1"
}

# Make a machine named $1 with only the tools that deps.sh takes for granted,
# and the programs in the rest of the arguments.
machine() {
	bin=$tmp/$1/bin
	log=$tmp/$1/log
	mkdir -p "$bin" "$tmp/$1/repo/.ci"
	: >"$log"
	cp "$here/deps.sh" "$tmp/$1/repo/.ci/"
	printf 'module example.com/m\n\ngo 1.26\n' >"$tmp/$1/repo/go.mod"
	for tool in sh awk sed dirname env chmod cat; do
		ln -s "$(command -v "$tool")" "$bin/$tool"
	done
	user=0
	shift
	for program; do
		case $program in
		user) user=1000 ;;
		go) script "$bin/go" 'echo go1.26.3' ;;
		oldgo) script "$bin/go" 'echo go1.24' ;;
		# What go says where it may not switch to the toolchain of go.mod.
		stuckgo) script "$bin/go" '[ "${GOTOOLCHAIN:-}" = local ] || exit 1; echo go1.25.1' ;;
		develgo) script "$bin/go" 'echo devel go1.27-abcdef' ;;
		cc) script "$bin/cc" '' ;;
		pkg-config) script "$bin/pkg-config" '[ "$1" != --exists ]' ;;
		zmq) script "$bin/pkg-config" 'echo 4.3.5' ;;
		python3) script "$bin/python3" 'echo "Python 3.12.1"' ;;
		oldpython3) script "$bin/python3" 'case $1 in --version) echo "Python 3.8.1" ;; *) exit 1 ;; esac' ;;
		sudo) script "$bin/sudo" "echo sudo \"\$@\" >>$log; [ \"\$1\" = -n ] && shift && exec \"\$@\"" ;;
		locked) script "$bin/sudo" "echo sudo \"\$@\" >>$log; exit 1" ;;
		broken) for m in apt-get dnf apk brew; do
			[ ! -e "$bin/$m" ] || script "$bin/$m" "echo $m \"\$@\" >>$log; exit 1"
		done ;;
		*) script "$bin/$program" "echo $program \"\$@\" >>$log
for a; do case \$a in
gcc) printf '#!/bin/sh\n' >$bin/cc; chmod +x $bin/cc ;;
libzmq3-dev | zeromq-devel | zeromq-dev | zeromq) printf '#!/bin/sh\necho 4.3.5\n' >$bin/pkg-config; chmod +x $bin/pkg-config ;;
python3) printf '#!/bin/sh\necho Python 3.12.1\n' >$bin/python3; chmod +x $bin/python3 ;;
esac; done" ;;
		esac
	done
	script "$bin/id" "echo $user"
}

# run WANT ARGS...: WANT is ok or fail. Output in $out, exit status judged.
run() {
	want=$1
	shift
	got=ok
	out=$(env -i PATH="$bin" ${CGO_OFF:+CGO_ENABLED=0} "$bin/../repo/.ci/deps.sh" "$@" 2>&1 </dev/null) || got=fail
	check "$want" = "$got"
}

check() {
	if [ "$@" ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf -- '--- FAIL: %s: [ %s ]\n%s\n' "$name" "$*" "$out"
	fi
}

ran() { check "$(cat "$log")" = "$1"; }

says() {
	case $out in
	*"$1"*) passed=$((passed + 1)) ;;
	*)
		failed=$((failed + 1))
		printf -- '--- FAIL: %s: output lacks "%s"\n%s\n' "$name" "$1" "$out"
		;;
	esac
}

name='everything is there'
machine complete go cc zmq apt-get
run ok
ran ''
says 'libzmq 4.3.5'

apt='-qq -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 install --no-install-recommends'
name='bare Debian as root'
machine debian go apt-get
run ok
ran "apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
apt-get $apt gcc libc6-dev pkg-config libzmq3-dev"

name='Debian with a compiler'
machine debian-cc go cc pkg-config apt-get
run ok
ran "apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
apt-get $apt libzmq3-dev"

name='Debian as a user with sudo'
machine debian-sudo user go cc pkg-config apt-get sudo
run ok
ran "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
sudo -n env DEBIAN_FRONTEND=noninteractive apt-get $apt libzmq3-dev
apt-get $apt libzmq3-dev"

name='Debian as a user whose sudo wants a password'
machine debian-locked user go cc pkg-config apt-get locked
run fail
says 'run as root: apt-get install libzmq3-dev'

name='Debian as a user without sudo'
machine debian-user user go cc pkg-config apt-get
run fail
ran ''
says 'run as root: apt-get install libzmq3-dev'

name='Debian without a network'
machine debian-offline go cc pkg-config apt-get broken
run fail
says 'run as root: apt-get install libzmq3-dev'

name='Fedora'
machine fedora go dnf
run ok
ran 'dnf -q -y install gcc glibc-devel pkgconf-pkg-config zeromq-devel'

name='Red Hat without EPEL'
machine redhat go cc pkg-config dnf broken
run fail
says 'EPEL'

name='Alpine'
machine alpine go apk
run ok
ran 'apk add --no-cache gcc musl-dev pkgconf zeromq-dev'

name='Mac'
machine mac user go cc brew
run ok
ran 'brew install pkgconf zeromq'

name='Mac without a compiler'
machine mac-bare user go brew
run fail
ran ''
says 'xcode-select --install'

name='a package manager that brings nothing'
machine useless go cc pkg-config apk
script "$bin/apk" 'exit 0'
run fail
says 'PKG_CONFIG_PATH'

name='no package manager'
machine none go
run fail
says 'libzmq3-dev'
says 'zeromq-devel'
says 'zeromq-dev'
says 'CGO_ENABLED=0'

name='without cgo'
machine nocgo go
CGO_OFF=1
run ok
unset CGO_OFF
ran ''

name='no Go'
machine nogo cc zmq
run fail
says 'Go 1.26 or newer is needed and no go is in PATH'

name='an old Go'
machine oldgo oldgo cc zmq
run fail
says 'Go 1.26 or newer is needed and this is go1.24'

name='an old Go that may not fetch a newer one'
machine stuckgo stuckgo cc zmq
run fail
says 'this is go1.25.1'

name='a development build of Go'
machine develgo develgo cc zmq
run ok

name='Go alone'
machine goonly go
run ok go
ran ''

name='Python is there'
machine python go python3
run ok python
ran ''

name='Python on Debian'
machine python-debian apt-get
run ok python
ran "apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
apt-get $apt python3 python3-venv"

name='Python on Alpine'
machine python-alpine apk
run ok python
ran 'apk add --no-cache python3 py3-pip'

name='Python too old, and nothing newer comes'
machine python-old oldpython3 apt-get
script "$bin/apt-get" 'exit 0'
run fail python
says 'Python 3.10'

name='an unknown argument'
machine usage go
run fail everything
says 'usage'

printf '%s: %d passed, %d failed\n' deps_test "$passed" "$failed"
[ "$failed" = 0 ]
