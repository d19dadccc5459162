#!/bin/sh
# Runs all tests, and lists the slowest. The output of all is in bin/tests afterwards.
#
#   test_all.sh [go test flags]
#
# Two lanes run side by side, each one package at a time: the packages whose tests mostly
# wait for ffmpeg, and the others, whose goroutines share memory, with the race detector.
# The tests of the built program run afterwards, alone: they check promises in seconds.
set -eu
cd "$(dirname "$0")/../.."

go=${GO:-go}
results=$PWD/bin/tests
rm -rf "$results"
mkdir -p "$results"
gotestsum=$("$go" tool -n -modfile=internal/tools/go.mod gotestsum)

# run NAME [flags] packages… prints failed tests, and a line for each package.
run() {
	file=$results/$1.json
	shift
	"$gotestsum" --format pkgname-and-test-fails --format-icons text --format-hide-empty-pkg \
		--hide-summary skipped,failed --jsonfile "$file" \
		--raw-command -- internal/setup/test.sh -json -vet=off -p 1 "$@"
}

(
	export RACE=no
	run ffmpeg "$@" ./internal/media ./stages/video
) &
failed=
run others "$@" $("$go" list ./... | grep -v -e /internal/media$ -e /stages/video$) || failed=yes
wait $! || failed=yes
export RACE=no MODULE=internal/e2e
run e2e "$@" ./... || failed=yes

echo 'The slowest tests:'
cat "$results"/*.json | "$gotestsum" tool slowest --num 20 | sed "s|^$("$go" list -m)/||"
[ -z "$failed" ]
