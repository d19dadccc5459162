#!/bin/sh
# After the removal. Debian calls it as `postrm remove` or `postrm purge`, RPM as `0`. Videos and the database are
# never deleted.
set -e

case ${1:-} in
remove | purge | 0) ;;
*) exit 0 ;;
esac

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ]; then
	rmdir /etc/cuelight 2>/dev/null || true # Debian has deleted the configuration file
fi
if [ "$1" != remove ] && [ -e /var/lib/cuelight ]; then
	echo 'cuelight: videos and the database remain in /var/lib/cuelight, or where data-dir and publish-dir were'
fi
