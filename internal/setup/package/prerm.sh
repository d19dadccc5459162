#!/bin/sh
# Before the removal. Debian calls it as `prerm remove`, RPM as `0`; in an upgrade the services run on until the
# new version is installed.
set -e

case ${1:-} in
remove | 0) ;;
*) exit 0 ;;
esac

if [ -d /run/systemd/system ]; then
	systemctl disable --now cuelight.service cuelight-work.service
fi
