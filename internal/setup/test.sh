#!/bin/sh
# Runs go test with the race detector. Without a C compiler, or on a machine that the
# race detector does not support, it prints that and runs the tests without it.
#
#   test.sh [go test flags] packages…
#
# The environment variable MODULE is the directory of the module, if not this one. With
# RACE=no the tests run without the detector, built like the product.
set -eu
cd "$(dirname "$0")/../../${MODULE:-}"

go=${GO:-go}

if [ "${RACE:-}" = no ]; then
	export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath -buildvcs=false"
# Building the detector's own package needs everything that the detector needs.
elif CGO_ENABLED=1 "$go" build -race runtime/race 2>/dev/null; then
	# Without it every process waits for a second at its end.
	export CGO_ENABLED=1 GORACE="atexit_sleep_ms=10 ${GORACE:-}"
	set -- -race "$@"
else
	echo 'cuelight: no C compiler, or no race detector for this machine: running the tests without -race' >&2
fi
# Longer than any package takes on two busy cores, where ffmpeg has the lowest priority.
# Short enough that a package that hangs still prints its stacks.
exec "$go" test -timeout 50m "$@"
