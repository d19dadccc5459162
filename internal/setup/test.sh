#!/bin/sh
# What `make test` runs: go test with the race detector, or, where there is none
# for this machine or no C compiler, without it and saying so.
#
#   test.sh [go test flags] packages…
#
# MODULE in the environment is the folder of the module to test, if not this one.
set -eu
cd "$(dirname "$0")/../../${MODULE:-}"

go=${GO:-go}

# Compiling the detector's own package takes everything that it needs.
if CGO_ENABLED=1 "$go" build -race runtime/race 2>/dev/null; then
	export CGO_ENABLED=1
	set -- -race "$@"
else
	echo 'cuelight: no C compiler, or no race detector for this machine: testing without -race' >&2
fi
# Longer than any package needs on two busy cores, where ffmpeg has the least
# priority; short enough that the stacks of one that hangs are still seen.
exec "$go" test -timeout 25m "$@"
