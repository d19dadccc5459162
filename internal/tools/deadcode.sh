#!/bin/sh
# Fails, and lists the functions, when there is dead code:
#
#   1. anywhere: what no command, test or example reaches. So what is exported
#      for embedders is alive by being tested;
#   2. under cmd/ and internal/, where nobody else can import it: what only
#      tests reach. Packages made for tests, whose names end in "test", are not
#      asked.
set -eu
cd "$(dirname "$0")/../.."

module=$("${GO:-go}" list -m)

deadcode() {
	"${GO:-go}" tool -modfile=internal/tools/go.mod deadcode "$@" ./...
}

everywhere=$(deadcode -test -filter "^$module(/|\$)")
inside=$(deadcode -filter "^$module/(cmd|internal|.*/internal)/" | sed '\|^[^:]*test/|d')

if [ -n "$everywhere" ]; then
	printf 'no command, test or example reaches:\n%s\n' "$everywhere" >&2
fi
if [ -n "$inside" ]; then
	printf 'no command reaches, and nobody else can:\n%s\n' "$inside" >&2
fi
[ -z "$everywhere$inside" ]
