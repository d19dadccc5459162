#!/bin/sh
# After the installation, an upgrade, or another installation after a removal. Debian calls it as `postinst configure`,
# RPM as `1` or, for an upgrade, `2`.
set -e

case ${1:-} in
configure | 1 | 2) ;;
*) exit 0 ;; # Debian takes an upgrade back
esac

systemd-sysusers cuelight.conf
# Passwords in it are for root and for the service. RPM resets the group in every upgrade.
if [ "$(stat -c %G /etc/cuelight/cuelight.yaml 2>/dev/null)" = root ]; then
	chgrp cuelight /etc/cuelight/cuelight.yaml
fi

if [ -d /run/systemd/system ]; then
	# On Debian this program asks policy-rc.d whether services may be restarted.
	invoke=$(command -v deb-systemd-invoke || echo systemctl)
	# Services that run finish their work for as long as the setting grace, release the rest, and start again.
	{ systemctl daemon-reload && "$invoke" try-restart cuelight.service cuelight-work.service; } ||
		echo 'cuelight: a service did not restart; see systemctl status cuelight cuelight-work' >&2
fi
if ! systemctl --quiet is-enabled cuelight.service cuelight-work.service 2>/dev/null; then
	# Nothing is started: the first start creates a private database, unless the file names another one.
	echo 'cuelight: edit /etc/cuelight/cuelight.yaml, then start the service: systemctl enable --now cuelight'
fi
