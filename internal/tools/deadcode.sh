#!/bin/sh
# Lists dead functions, and fails if there are any:
#
#   1. anywhere: functions that no command, test or example calls. So exported
#      functions for embedders must be tested;
#   2. in cmd/ and internal/, which other modules cannot import: functions that only
#      tests call. Packages for tests, whose names end in "test", are not checked.
set -eu
cd "$(dirname "$0")/../.."

module=$("${GO:-go}" list -m)
tools=$PWD/internal/tools/go.mod

deadcode() {
	"${GO:-go}" tool -modfile="$tools" deadcode "$@" ./...
}

everywhere=$(
	deadcode -test -filter "^$module(/|\$)"
	cd internal/e2e && deadcode -test -filter "^$module/internal/e2e(/|\$)"
)
inside=$(deadcode -filter "^$module/(cmd|internal|.*/internal)/" | sed '\|^[^:]*test/|d')

if [ -n "$everywhere" ]; then
	printf 'not called by any command, test or example:\n%s\n' "$everywhere" >&2
fi
if [ -n "$inside" ]; then
	printf 'internal, and not called by any command:\n%s\n' "$inside" >&2
fi
[ -z "$everywhere$inside" ]
