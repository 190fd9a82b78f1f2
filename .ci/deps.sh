#!/bin/sh
# Check for what the build needs beyond Go modules, and install what is missing.
#
#   deps.sh              Go, a C compiler, pkg-config, libzmq with its headers
#   deps.sh go           Go alone
#   deps.sh python       Python 3.10 with venv, for the conformance run
#   deps.sh valgrind     valgrind, which counts instructions
#
# It asks nothing: where it may not install, it says what to install and fails.
# With CGO_ENABLED=0 in the environment nothing but Go is needed.

set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

say() { printf 'deps: %s\n' "$*"; }

die() {
	printf 'deps: %s\n' "$@" >&2
	exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Print the first package manager that is here.
manager() {
	for m in apt-get dnf apk brew; do
		if have "$m"; then
			echo "$m"
			return
		fi
	done
}

# Run a command as root, as far as that takes no password.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif have sudo; then
		sudo -n "$@"
	else
		return 1
	fi
}

# Install packages: install MANAGER WHAT PACKAGE...
install() {
	m=$1 what=$2
	shift 2
	case $m in
	apt-get) by_hand="apt-get install $*" ;;
	dnf) by_hand="dnf install $*" ;;
	apk) by_hand="apk add $*" ;;
	brew) by_hand="brew install $*" ;;
	esac
	say "installing $what: $by_hand"
	case $m in
	apt-get)
		# A fresh machine has no package lists. Where they cannot be had, what
		# is there may still do.
		as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update || true
		as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 install --no-install-recommends "$@"
		;;
	dnf) as_root dnf -q -y install "$@" ;;
	apk) as_root apk add --no-cache "$@" ;;
	brew) HOMEBREW_NO_AUTO_UPDATE=1 NONINTERACTIVE=1 brew install "$@" ;; # refuses to run as root
	esac </dev/null || case $m in
	brew) die "could not install $what; run: $by_hand" ;;
	dnf) die "could not install $what; run as root: $by_hand" "(zeromq-devel is in EPEL where the distribution itself does not have it)" ;;
	*) die "could not install $what; run as root: $by_hand" ;;
	esac
}

# Whether version $1 is at least $2; both like 1.26 or 1.26.8.
at_least() {
	awk -v have="$1" -v want="$2" 'BEGIN {
		split(have, h, "."); split(want, w, ".")
		for (i = 1; i <= 3; i++) if (h[i] + 0 != w[i] + 0) exit !(h[i] + 0 > w[i] + 0)
	}'
}

check_go() {
	want=$(awk '$1 == "go" { print $2; exit }' "$root/go.mod")
	have go || die "Go $want or newer is needed and no go is in PATH; get it from https://go.dev/dl/"
	# Asked inside the module, since go may fetch the toolchain that go.mod
	# wants, and outside of it for what it is by itself.
	if ! version=$(cd "$root" && go env GOVERSION 2>/dev/null) || [ -z "$version" ]; then
		version=$(cd / && GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || version=unknown
	fi
	number=$(printf '%s' "$version" | sed -n 's/^[^0-9]*\([0-9][0-9.]*\).*/\1/p')
	# A development build has no number, and whoever runs one knows.
	case $version in devel*) number=$want ;; esac
	at_least "${number:-0}" "$want" ||
		die "Go $want or newer is needed and this is $version; get it from https://go.dev/dl/"
	say "$version is new enough (go.mod says $want)"
}

# cgo takes the compiler that CC names; go's own default is gcc or clang.
have_cc() {
	if [ -n "${CC:-}" ]; then
		have "${CC%% *}"
	else
		have cc || have gcc || have clang
	fi
}

# The name of pkg-config, as go sees it.
pkgconfig=${PKG_CONFIG:-pkg-config}

have_zmq() { have "$pkgconfig" && "$pkgconfig" --exists libzmq; }

check_c() {
	if have_cc && have_zmq; then
		say "a C compiler and libzmq $("$pkgconfig" --modversion libzmq) are here"
		return
	fi
	m=$(manager)
	case $m in
	apt-get) cc='gcc libc6-dev' pc=pkg-config zmq=libzmq3-dev ;;
	dnf) cc='gcc glibc-devel' pc=pkgconf-pkg-config zmq=zeromq-devel ;;
	apk) cc='gcc musl-dev' pc=pkgconf zmq=zeromq-dev ;;
	brew) cc='' pc=pkgconf zmq=zeromq ;;
	*)
		die "a C compiler, pkg-config and libzmq with its headers are needed, and none of apt, dnf, apk and brew is here to install them" \
			"install them by hand; the packages are called" \
			"  Debian, Ubuntu   gcc libc6-dev pkg-config libzmq3-dev" \
			"  Fedora           gcc glibc-devel pkgconf-pkg-config zeromq-devel" \
			"  Alpine           gcc musl-dev pkgconf zeromq-dev" \
			"  macOS            pkgconf zeromq (Homebrew), and the command line tools: xcode-select --install" \
			"or build without the subscriber: CGO_ENABLED=0"
		;;
	esac
	packages=
	if ! have_cc; then
		[ -n "$cc" ] || die "a C compiler is needed; run: xcode-select --install"
		packages=$cc
	fi
	have "$pkgconfig" || packages="$packages $pc"
	have_zmq || packages="$packages $zmq"
	# shellcheck disable=SC2086 # words
	install "$m" 'what the subscriber needs' $packages
	have_cc || die "there is still no C compiler after installing one"
	have_zmq || die "pkg-config still does not find libzmq after installing $packages" "set PKG_CONFIG_PATH to the folder that holds libzmq.pc"
	say "libzmq $("$pkgconfig" --modversion libzmq) is here now"
}

have_python() {
	# On Debian the venv module is there without ensurepip, which it needs.
	have python3 && python3 -c '
import sys
import ensurepip, venv
sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

check_python() {
	if ! have_python; then
		m=$(manager)
		case $m in
		apt-get) install "$m" 'Python' python3 python3-venv ;;
		dnf) install "$m" 'Python' python3 python3-pip ;;
		apk) install "$m" 'Python' python3 py3-pip ;;
		brew) install "$m" 'Python' python3 ;;
		*) die "Python 3.10 or newer with the venv module is needed, and none of apt, dnf, apk and brew is here to install it" ;;
		esac
		have_python || die "Python 3.10 or newer with the venv module is needed; $(command -v python3 || echo python3) is not that"
	fi
	say "$(python3 --version) is here"
}

check_valgrind() {
	if ! have valgrind; then
		m=$(manager)
		[ -n "$m" ] || die "valgrind is needed, and none of apt, dnf, apk and brew is here to install it"
		install "$m" 'valgrind' valgrind
		have valgrind || die "there is still no valgrind after installing it"
	fi
	say "$(valgrind --version) is here"
}

case ${1:-all} in
all)
	check_go
	if [ "${CGO_ENABLED:-1}" = 0 ]; then
		say "CGO_ENABLED=0: no C compiler and no libzmq needed, and no subscriber built"
	else
		check_c
	fi
	;;
go) check_go ;;
python) check_python ;;
valgrind) check_valgrind ;;
*) die "usage: deps.sh [all|go|python|valgrind]" ;;
esac
