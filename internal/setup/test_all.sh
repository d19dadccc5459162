#!/bin/sh
# Runs all tests, and lists the slowest. The output of all is in bin/tests afterwards.
#
#   test_all.sh [go test flags]
#
# Two lanes run side by side, each one package at a time, because half of the time is
# ffmpeg's: internal/media and stages/video, and all others. The tests of the built program
# run afterwards, alone: they check promises in seconds. The race detector is left out where
# nearly all work is that of other programs. Vet is a check of its own (make vet).
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

# A shell lets what it starts in the background ignore an interrupt.
trap 'trap "" TERM; kill 0; exit 130' INT TERM
(
	failed=
	RACE=no
	export RACE
	run media "$@" ./internal/media || failed=yes
	unset RACE
	run video "$@" ./stages/video || failed=yes
	[ -z "$failed" ]
) &
failed=
run others "$@" $("$go" list ./... | grep -v -e /internal/media$ -e /stages/video$) || failed=yes
for name in chaos load; do
	export MODULE=internal/proof/$name
	run "$name" "$@" ./... || failed=yes
done
wait $! || failed=yes
export RACE=no MODULE=internal/e2e
run e2e "$@" ./... || failed=yes

echo 'The slowest tests:'
cat "$results"/*.json | "$gotestsum" tool slowest --num 20 | sed "s|^$("$go" list -m)/||"
[ -z "$failed" ]
