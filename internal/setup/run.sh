#!/bin/sh
# The steps of `make run` before and after the build:
#
#   run.sh check   checks that VIDEO exists, before anything is installed
#   run.sh         runs bin/cuelight on VIDEO, or on a generated sample
#
# VIDEO is an environment variable and never part of a command's text, because a file
# name may contain any character. Exit codes: 2 if there is no such video, else those
# of ffmpeg or cuelight.
set -eu
cd "$(dirname "$0")/../.."

video=${VIDEO:-}
sample=bin/sample.mp4 # git ignores it, and `make clean` deletes it

say() { printf 'cuelight: %s\n' "$*" >&2; }

# Ten seconds with a clock, motion and a tone. The file is renamed when it is complete,
# so that an interrupted run leaves no incomplete sample.
make_sample() {
	[ ! -f "$sample" ] || return 0
	mkdir -p bin
	ffmpeg -nostdin -hide_banner -loglevel error -y \
		-f lavfi -i testsrc2=size=1280x720:rate=30 \
		-f lavfi -i sine=frequency=440:sample_rate=48000 \
		-t 10 -c:v libx264 -preset veryfast -c:a aac -movflags +faststart \
		-f mp4 "$sample.part" >&2
	mv "$sample.part" "$sample"
}

if [ "${1:-}" = check ]; then
	case $video in
	'' | *://*) ;;
	*)
		if [ ! -f "$video" ] || [ ! -r "$video" ]; then
			say "VIDEO=$video: no such file, or not readable"
			exit 2
		fi
		;;
	esac
	exit 0
fi

if [ -z "$video" ]; then
	make_sample
	video=$sample
	say "no VIDEO=… given: using a sample, $sample"
fi
exec bin/cuelight run -- "$video"
