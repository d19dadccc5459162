#!/bin/sh
# Copies bin/cuelight and the files that belong to it, and prints their paths.
#
#   files.sh DESTDIR PREFIX
#
# An existing configuration file is kept.
set -eu
cd "$(dirname "$0")/../.."
dest=$1 prefix=$2

# copy MODE FILE DIRECTORY [NAME]
copy() {
	name=${4:-${2##*/}}
	install -d "$dest$3"
	install -m "$1" "$2" "$dest$3/$name"
	echo "$dest$3/$name"
}

generated=$(mktemp -d)
trap 'rm -rf "$generated"' EXIT

copy 755 bin/cuelight "$prefix/bin"
for unit in cuelight.service cuelight-work.service; do
	sed "s|/usr/local/bin/|$prefix/bin/|" "docs/deploy/$unit" >"$generated/$unit"
	copy 644 "$generated/$unit" "$prefix/lib/systemd/system"
done
copy 644 docs/deploy/sysusers.conf "$prefix/lib/sysusers.d" cuelight.conf
[ -e "$dest/etc/cuelight/cuelight.yaml" ] || copy 644 docs/deploy/cuelight.yaml /etc/cuelight

mkdir "$generated/man"
bin/cuelight man "$generated/man"
for page in "$generated/man"/*; do copy 644 "$page" "$prefix/share/man/man1"; done

for shell in bash zsh fish; do bin/cuelight completion $shell >"$generated/$shell"; done
copy 644 "$generated/bash" "$prefix/share/bash-completion/completions" cuelight
copy 644 "$generated/zsh" "$prefix/share/zsh/site-functions" _cuelight
copy 644 "$generated/fish" "$prefix/share/fish/vendor_completions.d" cuelight.fish
