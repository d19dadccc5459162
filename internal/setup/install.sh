#!/bin/sh
# Installs the programs that Cuelight needs besides Go. If nothing is missing, it
# prints nothing and does not call the package manager.
#
#   install.sh run    PostgreSQL's server programs, ffmpeg and ffprobe
#   install.sh test   the same, and a C compiler for the race detector; with
#                     CI=true also a browser for the player test, and Python for
#                     the one of the worker in docs/worker.py; with apt-get
#                     also PgBouncer and ip for tests of the listener
#
# Without a compiler the tests run without the race detector. Tests that need a
# missing browser, Python, PgBouncer or ip are skipped. All other programs are required.
# Environment variables:
#
#   CUELIGHT_PG_BIN        directory of PostgreSQL's programs, if it is not a usual one
#   CUELIGHT_TEST_BROWSER  1: install a browser without CI=true, too; other values: never
#   CUELIGHT_TEST_POOLER   1: always install PgBouncer and ip; 0: never
#   CUELIGHT_INSTALL       no: install nothing, print the command that would do it
#
# Exit codes: 0 the required programs are installed; 1 their installation failed;
# 2 this script cannot install them, and has printed the command to run.
#
# Lists of parts and packages are strings of words, which are split when used:
# shellcheck disable=SC2086
set -u

oldest_postgres=13
manager=           # the package manager, once something is missing
log=               # file with the package manager's output
cluster_forbidden= # set while our setting for Debian's PostgreSQL packages exists

say() { printf 'cuelight: %s\n' "$*" >&2; }

have() { command -v "$1" >/dev/null 2>&1; }

# --- Missing parts --------------------------------------------------------

# From 1.21 on, Go downloads the version that go.mod names by itself.
check_go() {
	if have go; then
		case $(cd / && go env GOVERSION) in
		go1.[0-9] | go1.[0-9].* | go1.1[0-9]* | go1.20*) ;;
		*) return ;;
		esac
	fi
	say 'building Cuelight needs Go 1.26 or newer, which is not installed; see https://go.dev/dl'
	exit 2
}

# postgres_in DIR: DIR contains a server that is new enough, and initdb.
postgres_in() {
	[ -x "$1/postgres" ] && [ -x "$1/initdb" ] || return 1
	major=$("$1/postgres" -V 2>/dev/null | sed -n 's/^postgres (PostgreSQL) \([0-9]*\).*/\1/p')
	[ "${major:-0}" -ge "$oldest_postgres" ]
}

# have_postgres searches the same directories as internal/postgres.
have_postgres() {
	if [ -n "${CUELIGHT_PG_BIN:-}" ]; then
		postgres_in "$CUELIGHT_PG_BIN"
		return
	fi
	if have pg_config && postgres_in "$(pg_config --bindir 2>/dev/null)"; then return 0; fi
	if have postgres && postgres_in "$(dirname "$(command -v postgres)")"; then return 0; fi
	for dir in /usr/lib/postgresql/*/bin /usr/lib/postgresql*/bin /usr/libexec/postgresql* /usr/pgsql-*/bin \
		/usr/local/bin /usr/local/pgsql/bin /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin \
		/Applications/Postgres.app/Contents/Versions/*/bin; do
		if postgres_in "$dir"; then return 0; fi
	done
	return 1
}

# A compiler without the C library's headers is not enough.
have_compiler() {
	if [ "$(uname -s)" = Darwin ]; then
		xcode-select -p >/dev/null 2>&1
		return
	fi
	printf '#include <pthread.h>\n#include <stdlib.h>\n' |
		${CC:-gcc} -fsyntax-only -x c - >/dev/null 2>&1
}

wants_browser() {
	case ${CUELIGHT_TEST_BROWSER:-${CI:-}} in 1 | true) ;; *) return 1 ;; esac
}

wants_python() {
	case ${CI:-} in 1 | true) ;; *) return 1 ;; esac
}

# wants_pooler: PgBouncer and ip are wanted, and can be installed without a password.
# Debian starts a service when PgBouncer is installed. So on machines that run
# services, they are installed only in CI, or if CUELIGHT_TEST_POOLER is 1.
wants_pooler() {
	have apt-get && [ "${CUELIGHT_INSTALL:-}" != no ] || return 1
	case ${CUELIGHT_TEST_POOLER:-${CI:-}} in
	1 | true) ;;
	'' | false) [ ! -d /run/systemd/system ] || return 1 ;;
	*) return 1 ;;
	esac
	[ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }
}

# root_has PROGRAM: it may be in a directory that only root has in its PATH.
root_has() { have "$1" || as_root sh -c "command -v $1" >/dev/null 2>&1; }

# missing_parts run|test: prints those of postgres, ffmpeg, compiler, browser, python,
# pooler and network that are missing.
missing_parts() {
	have_postgres || echo postgres
	{ have ffmpeg && have ffprobe; } || echo ffmpeg
	[ "$1" = test ] || return 0
	have_compiler || echo compiler
	! wants_browser || have chromium || have chromium-browser || have google-chrome || echo browser
	! wants_python || have python3 || echo python
	wants_pooler || return 0
	root_has pgbouncer || echo pooler
	root_has ip || echo network
}

# --- Package managers --------------------------------------------------------

find_manager() {
	for manager in apt-get dnf apk pacman brew; do
		if have "$manager"; then return; fi
	done
	manager=
}

# packages_of PART…: prints the names of the packages for this package manager.
packages_of() {
	for part in "$@"; do
		case $manager:$part in
		brew:postgres) echo postgresql@17 ;;
		dnf:postgres) echo postgresql-server ;;
		*:postgres) echo postgresql ;;
		*:ffmpeg) echo ffmpeg ;;
		brew:*) ;; # the compiler comes from Apple, the browser with its user
		apt-get:compiler) echo gcc libc6-dev ;;
		apk:compiler) echo gcc musl-dev ;;
		dnf:compiler) echo gcc glibc-devel ;;
		pacman:compiler) echo gcc ;;
		*:browser) echo chromium ;;
		pacman:python) echo python ;;
		*:python) echo python3 ;;
		*:pooler) echo pgbouncer ;;
		*:network) echo iproute2 ;;
		esac
	done
}

# install_command PACKAGE…: prints the command that installs them.
install_command() {
	sudo=
	if [ "$(id -u)" != 0 ] && have sudo; then sudo='sudo '; fi
	case $manager in
	apt-get) echo "${sudo}apt-get update && ${sudo}apt-get install -y --no-install-recommends $*" ;;
	dnf) echo "${sudo}dnf install -y $*" ;;
	apk) echo "${sudo}apk add $*" ;;
	pacman) echo "${sudo}pacman -S --needed --noconfirm $*" ;;
	brew) echo "brew install $*" ;;
	esac
}

# may_install: this script supports the package manager, and runs as root or can use
# sudo, without a password or with one typed at this terminal.
may_install() {
	[ "${CUELIGHT_INSTALL:-}" != no ] || return 1
	case $manager in
	apt-get) ;;
	brew) [ "$(id -u)" != 0 ] && return ;;
	*) return 1 ;;
	esac
	[ "$(id -u)" = 0 ] && return
	have sudo || return 1
	sudo -n true 2>/dev/null && return
	[ -t 0 ] && [ -t 2 ] && sudo -v -p 'cuelight: to install packages, the password of %p: '
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

apt_get() {
	as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
		${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} \
		apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null >"$log" 2>&1
}

# DPkg::Lock::Timeout does not cover the lock of the package lists. So wait here for
# another updater, up to the same time.
apt_update() {
	waited=0
	until apt_get update; do
		if [ "$waited" -ge 300 ] || ! grep -q 'Could not get lock' "$log"; then return 1; fi
		sleep 5
		waited=$((waited + 5))
	done
}

# The package lists are updated only if the installation fails without that: a package
# is unknown, or the archive has replaced its version.
apt_install() {
	apt_get install --no-install-recommends "$@" && return
	apt_update && apt_get install --no-install-recommends "$@"
}

# Debian's packages create and start a server of their own, unless this setting
# prevents it. Cuelight does not need that server.
cluster_conf=/etc/postgresql-common/createcluster.d/cuelight-setup.conf

forbid_cluster() {
	[ ! -e "$cluster_conf" ] || return 0
	cluster_forbidden=yes
	as_root mkdir -p "${cluster_conf%/*}" &&
		echo 'create_main_cluster = false' | as_root tee "$cluster_conf" >/dev/null
}

# The setting is deleted, so that it does not affect later installations of PostgreSQL.
# shellcheck disable=SC2317 # called by the trap
clean_up() {
	if [ -n "$cluster_forbidden" ]; then as_root rm -f "$cluster_conf"; fi
	rm -f "$log"
}

# install_packages PART…: installs them; prints the packages, the download size and the time.
install_packages() {
	packages=$(packages_of "$@" | tr '\n' ' ')
	[ -n "$packages" ] || return 1
	size=
	if [ "$manager" = apt-get ]; then
		size=$(apt-get --print-uris -y --no-install-recommends install $packages 2>/dev/null |
			sed -n 's/^Need to get \([^ /]*\) \([kMG]*B\).*/; \1 \2 to download/p')
	fi
	say "installing ${packages% } with $manager, this once$size; this takes one to three minutes …"
	began=$(date +%s)
	case $manager in
	apt-get) apt_install $packages ;;
	brew) brew install $packages </dev/null >"$log" 2>&1 ;;
	esac || {
		say "$manager could not install ${packages% }:"
		tail -n 10 "$log" >&2
		return 1
	}
	say "installed in $(($(date +%s) - began)) s"
}

# --- Main --------------------------------------------------------------------

# print_instructions PART…: prints how to install them, where this script may not.
print_instructions() {
	parts=$*
	say "missing: $parts"
	packages=$(packages_of "$@" | tr '\n' ' ')
	if [ -n "$packages" ] && [ -n "$manager" ]; then
		say "to install, run as an administrator:"
		printf '\n    %s\n\n' "$(install_command ${packages% })" >&2
	fi
	case $manager:" $parts " in
	brew:*' compiler '*) say 'for the C compiler: xcode-select --install' ;;
	dnf:*' ffmpeg '*) say "ffmpeg needs libx264: RPM Fusion's package has it, Fedora's does not" ;;
	esac
}

# install_missing PART…: installs them, and exits with the script's exit code.
install_missing() {
	find_manager
	if ! may_install; then
		print_instructions "$@"
		case " $* " in *' postgres '* | *' ffmpeg '*) exit 2 ;; esac
		exit 0
	fi
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	log=$(mktemp "${TMPDIR:-/tmp}/cuelight-setup.XXXXXX") || exit 1
	case $manager:" $* " in apt-get:*' postgres '*) forbid_cluster || exit 1 ;; esac

	# Each of these is installed separately: if its package does not exist, the others must not fail.
	rest=$(printf '%s\n' "$@" | grep -v -e '^browser$' -e '^python$' -e '^pooler$' -e '^network$')
	failed=
	if [ -n "$rest" ]; then install_packages $rest || failed=yes; fi
	case " $* " in *' browser '*) install_packages browser || say 'the player test will be skipped' ;; esac
	case " $* " in *' python '*) install_packages python || say 'the test of the worker in Python will be skipped' ;; esac
	case " $* " in *' pooler '*) install_packages pooler || say 'the tests with PgBouncer will be skipped' ;; esac
	case " $* " in *' network '*) install_packages network || say 'the tests with a lost network will be skipped' ;; esac

	missing=$(missing_parts run | tr '\n' ' ')
	[ -z "$missing" ] && exit 0
	if [ -z "$failed" ]; then
		say "still missing: ${missing% }. Cuelight needs PostgreSQL $oldest_postgres or newer, ffmpeg and ffprobe;"
		say 'if PostgreSQL is installed in another directory, set CUELIGHT_PG_BIN'
	fi
	exit 1
}

case ${1:-} in
run | test) ;;
*)
	say 'usage: install.sh run|test'
	exit 2
	;;
esac
check_go
if [ -n "${CUELIGHT_PG_BIN:-}" ] && ! have_postgres; then
	say "CUELIGHT_PG_BIN=$CUELIGHT_PG_BIN contains no PostgreSQL $oldest_postgres or newer (postgres, initdb)"
	exit 2
fi
missing=$(missing_parts "$1")
if [ -n "$missing" ]; then install_missing $missing; fi
