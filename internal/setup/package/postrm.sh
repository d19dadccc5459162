#!/bin/sh
# After the removal. Debian calls it as `postrm remove` or `postrm purge`, RPM as `0`. Videos and the database are
# never deleted.
set -e

case ${1:-} in
remove | purge | 0) ;;
*) exit 0 ;;
esac

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || echo 'cuelight: systemd did not read its units again; do so: systemctl daemon-reload' >&2
fi
if [ "$1" = purge ]; then
	rmdir /etc/cuelight 2>/dev/null || true # Debian has deleted the configuration file
fi
if [ "$1" != remove ]; then
	if [ -e /var/lib/cuelight ]; then
		echo 'cuelight: videos and the database remain in /var/lib/cuelight, or where data-dir and publish-dir were;' \
			'to delete them: rm -r /var/lib/cuelight'
	fi
	echo 'cuelight: the account cuelight remains; to delete it: userdel cuelight'
fi
