#!/bin/sh
# Lists dead functions, and fails if there are any:
#
#   1. anywhere: functions that no command, test or example calls. So exported
#      functions for embedders must be tested;
#   2. in cmd/ and internal/, which other modules cannot import: functions that only
#      tests call. Packages for tests, whose names end in "test", are not checked.
#
# The programs of internal/proof count as commands. They are modules of their own, and
# share a workspace with the product's for this.
set -eu
cd "$(dirname "$0")/../.."

go=${GO:-go}
module=$("$go" list -m)
deadcode=$("$go" tool -n -modfile="$PWD/internal/tools/go.mod" deadcode)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GOWORK="$work/go.work" "$go" work init . internal/proof/chaos internal/proof/load

product() {
	GOWORK="$work/go.work" "$deadcode" "$@" ./... ./internal/proof/chaos ./internal/proof/load
}

everywhere=$(
	product -test -filter "^$module(/|\$)"
	cd internal/e2e && "$deadcode" -test -filter "^$module/internal/e2e(/|\$)" ./...
)
inside=$(product -filter "^$module/(cmd|internal|.*/internal)/" | sed '\|^[^:]*test/|d')

if [ -n "$everywhere" ]; then
	printf 'not called by any command, test or example:\n%s\n' "$everywhere" >&2
fi
if [ -n "$inside" ]; then
	printf 'internal, and not called by any command:\n%s\n' "$inside" >&2
fi
[ -z "$everywhere$inside" ]
