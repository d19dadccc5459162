#!/bin/sh
# Builds packages of bin/cuelight for Debian and for RPM systems, in bin. The files are those
# of `make install`, with the licence, the changelog and an example of the configuration file.
#
# VERSION is that of the packages. dpkg and rpm sort 1.0.0~rc1 before 1.0.0, and what git describe
# adds to a tag, as in 1.0.0+5+gHASH, after it. Without a number, as in a checkout without tags, it
# becomes 0~DATE.COMMIT, which is older than every release.
set -eu
umask 022
cd "$(dirname "$0")/../.."

version=${VERSION#v}
case $version in
[0-9]*.[0-9]*) version=$(echo "$version" | sed 's/-dirty$/+dirty/; s/-\([0-9]*\)-\(g[0-9a-f]*\)/+\1+\2/; s/-/~/g') ;;
*) version="0~$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd).$(echo "${version:-unknown}" | tr '-' '+')" ;;
esac

# The packages of one commit are the same on every day.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

stage=bin/package
rm -rf "$stage"
internal/setup/files.sh "$PWD/$stage" /usr >/dev/null
gzip -9 -n "$stage"/usr/share/man/man1/*
mv "$stage/usr/share/zsh/site-functions" "$stage/zsh"
doc=$stage/usr/share/doc/cuelight
mkdir -p "$doc/examples"
cp LICENSE "$doc/copyright"
gzip -9 -n -c CHANGELOG.md >"$doc/changelog.gz"
bin/cuelight config example >"$doc/examples/cuelight.yaml"

PACKAGE_VERSION=$version PACKAGE_ARCH=$("${GO:-go}" env GOARCH)
export PACKAGE_VERSION PACKAGE_ARCH
for packager in deb rpm; do
	"${GO:-go}" tool -modfile="$PWD/internal/tools/go.mod" nfpm package \
		-f internal/setup/package/nfpm.yaml -p $packager -t bin/
done
