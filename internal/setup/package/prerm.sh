#!/bin/sh
# Before the removal. Debian calls it as `prerm remove`, RPM as `0`; in an upgrade the services run on until the
# new version is installed. An error of systemd does not prevent the removal.
set -e

case ${1:-} in
remove | 0) ;;
*) exit 0 ;;
esac

if [ -d /run/systemd/system ]; then
	# On Debian this program asks policy-rc.d whether services may be stopped.
	invoke=$(command -v deb-systemd-invoke || echo systemctl)
	"$invoke" stop cuelight.service cuelight-work.service ||
		echo 'cuelight: a service did not stop; see systemctl status cuelight cuelight-work' >&2
	systemctl disable cuelight.service cuelight-work.service ||
		echo 'cuelight: a service was not disabled; do so: systemctl disable cuelight cuelight-work' >&2
fi
