#!/bin/sh
# Installs the package in a bare Debian, starts the daemon, upgrades the package while a video is
# transcoded, and removes it. It needs root, debootstrap, a mirror of Debian, and some minutes.
#
#   package_test.sh
#
# SUITE is the release of Debian, ROOT an existing directory with a bare one, which is kept.
#
# There is no systemd as process 1 in a chroot. So systemd-analyze checks the units, and this
# script does what systemd would do: it makes the StateDirectory, runs ExecStart as User, sends SIGHUP
# and SIGTERM, and starts the daemon again after the upgrade. The sandbox of the units, and the calls of
# systemctl in the scripts of the package, are not tested.
set -eu
cd "$(dirname "$0")/../.."

suite=${SUITE:-bookworm}
root=${ROOT:-}
logs=$(mktemp -d)
daemon= # its process id
exec=
: >"$logs/daemon"

say() { printf '=== %s\n' "$*"; }

fail() {
	say "FAILED: $*"
	tail -n 20 "$logs"/* >&2 || true
	exit 1
}

inside() {
	chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
		${HTTP_PROXY:+"http_proxy=$HTTP_PROXY"} ${HTTPS_PROXY:+"https_proxy=$HTTPS_PROXY"} "$@"
}

# as_service runs a command as the account of the service, without variables. In the background, exec makes
# it the process that $! names.
as_service() {
	$exec chroot "$root" /usr/bin/setpriv --reuid cuelight --regid cuelight --init-groups \
		/usr/bin/env -i PATH=/usr/bin:/bin HOME=/var/lib/cuelight LANG=C.UTF-8 STATE_DIRECTORY=/var/lib/cuelight "$@"
}

clean_up() {
	trap '' INT TERM
	if [ -n "$daemon" ] && kill "$daemon" 2>/dev/null; then
		sleep 1
		kill "$daemon" 2>/dev/null || true # the second signal stops it at once
		wait "$daemon" || true
	fi
	for mount in dev sys proc; do umount -R -l "$root/$mount" 2>/dev/null || true; done
	if [ -z "${ROOT:-}" ]; then rm -rf --one-file-system "$root"; fi
	rm -rf "$logs"
}

make_root() {
	sources=$(ls /etc/apt/sources.list.d/*.sources | head -n 1)
	here=$(. /etc/os-release && echo "$VERSION_CODENAME")
	if [ -z "$root" ]; then
		root=$(mktemp -d /var/tmp/cuelight-package.XXXXXX)
		chmod 755 "$root"
		say "a bare Debian $suite in $root"
		debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" \
			"$(awk '/^URIs:/ { print $2; exit }' "$sources")" >"$logs/debootstrap"
	fi
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	sed "s/$here/$suite/g" "$sources" >"$root/etc/apt/sources.list.d/debian.sources"
	: >"$root/etc/apt/sources.list"
	cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
	cp -r /etc/ssl/certs/. "$root/etc/ssl/certs/"
	cp /usr/share/keyrings/debian-archive-keyring.gpg "$root/usr/share/keyrings/"
	cp /etc/resolv.conf /etc/hosts "$root/etc/"
	# No service of the installed packages is to start.
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	for mount in proc sys dev; do mount --rbind "/$mount" "$root/$mount"; done
}

# build VERSION puts a package into the root directory.
build() {
	make -s package VERSION="$1" >"$logs/build"
	cp "bin/cuelight_$1_$(dpkg --print-architecture).deb" "$root/root/cuelight-$1.deb"
}

# The output of scripts has apt's line ends, \r\n.
install_package() {
	inside apt-get -q -y install "/root/cuelight-$1.deb" >"$logs/install-$1" 2>&1 || fail "the installation of $1"
}

start() {
	command=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/cuelight.service")
	# shellcheck disable=SC2086 # words of a command
	{ exec=exec && as_service $command 2>>"$logs/daemon"; } &
	daemon=$!
}

# wait_for SECONDS COMMAND… waits until the command succeeds.
wait_for() {
	seconds=$1
	shift
	while ! "$@"; do
		seconds=$((seconds - 1))
		[ "$seconds" -gt 0 ] || fail "waited for: $*"
		kill -0 "$daemon" || fail "the daemon has ended"
		sleep 1
	done
}

logged() { grep -q "$1" "$logs/daemon"; }

status() { as_service cuelight list --json | grep -q "$1"; }

# running: parts of the transcode are not completed.
running() { status '"stage":"transcode","status":"divided"' && logged '"part started".*"parts":1[0-9]'; }

check_installed() {
	[ "$(inside stat -c '%a %U %G' /etc/cuelight/cuelight.yaml)" = '640 root cuelight' ] || fail 'the mode of the configuration file'
	as_service cuelight config check || fail 'the configuration file'
	as_service cuelight config show | grep -q '^data-dir  */var/lib/cuelight ' || fail 'the settings'
	inside systemd-analyze verify cuelight.service cuelight-work.service || fail 'the units'
	for file in man/man1/cuelight-serve.1.gz bash-completion/completions/cuelight zsh/vendor-completions/_cuelight \
		fish/vendor_completions.d/cuelight.fish doc/cuelight/copyright doc/cuelight/examples/cuelight.yaml; do
		[ -s "$root/usr/share/$file" ] || fail "/usr/share/$file is missing"
	done
	inside cuelight config check /usr/share/doc/cuelight/examples/cuelight.yaml || fail 'the example'
}

make_root
say 'build two versions'
build 0.0.1
build 0.0.2

say 'install'
install_package 0.0.1
grep '^cuelight: ' "$logs/install-0.0.1"
check_installed

say 'start, and submit a video'
printf 'chunk: 6s\npreset: medium\n' >>"$root/etc/cuelight/cuelight.yaml"
inside install -d -o cuelight -g cuelight /var/lib/cuelight
inside ffmpeg -v error -y -f lavfi -i testsrc2=size=640x360:rate=25 -f lavfi -i sine -t 60 \
	-c:v libx264 -preset ultrafast -g 50 -pix_fmt yuv420p -c:a aac /srv/film.mp4
start
wait_for 120 logged '"working"'
echo 'log-level: warn' >>"$root/etc/cuelight/cuelight.yaml"
kill -HUP "$daemon"
wait_for 10 logged '"setting":"log-level","value":"warn"'
sed -i '/^log-level/d' "$root/etc/cuelight/cuelight.yaml"
kill -HUP "$daemon"
wait_for 10 logged '"settings reloaded"'
as_service cuelight submit /srv/film.mp4
wait_for 120 running

say 'upgrade during the transcode'
install_package 0.0.2
grep -q '^chunk: 6s$' "$root/etc/cuelight/cuelight.yaml" || fail 'the upgrade has replaced the configuration file'
running || fail 'the transcode has ended; make it longer'
kill "$daemon"
wait "$daemon" || fail "the daemon's exit code"
logged '"draining"' || fail 'the daemon did not drain'
start
wait_for 600 status '"status":"completed","stages"'
as_service cuelight workers --json >"$logs/workers"
[ "$(grep -o '"version":"[^"]*"' "$logs/workers")" = '"version":"0.0.2"' ] || fail 'the version of the worker after the upgrade'
if as_service cuelight list --json | grep -o '"attempts":[2-9]'; then fail 'a stage was attempted again'; fi
! logged '"attempt failed"' || fail 'an attempt failed'
video=$(cd "$root/var/lib/cuelight/published" && ls -d ./*/master.m3u8)
say "published: $video"
kill "$daemon"
wait "$daemon" || fail "the daemon's exit code"
daemon=

say 'remove and purge'
inside apt-get -q -y remove cuelight >"$logs/remove" 2>&1 || fail 'the removal'
[ -e "$root/etc/cuelight/cuelight.yaml" ] || fail 'the removal has deleted the configuration file'
install_package 0.0.2
grep '^cuelight: .*systemctl enable --now cuelight' "$logs/install-0.0.2" || fail 'the installation after a removal gives no hint'
inside apt-get -q -y purge cuelight >"$logs/purge" 2>&1 || fail 'the purge'
grep '^cuelight: .*rm -r /var/lib/cuelight' "$logs/purge" || fail 'the purge does not say how to delete the videos'
grep '^cuelight: .*userdel cuelight' "$logs/purge" || fail 'the purge does not say how to delete the account'
[ ! -e "$root/etc/cuelight" ] || fail 'the purge has left the configuration file'
[ -e "$root/var/lib/cuelight/published/$video" ] || fail 'the purge has deleted a video'
say 'ok'
