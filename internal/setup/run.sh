#!/bin/sh
# What `make run` does around the building:
#
#   run.sh check   refuses a VIDEO that is not there, before anything is installed
#   run.sh         runs bin/cuelight on VIDEO, or on a sample made on the spot
#
# VIDEO comes in the environment and is never put into a command's text: it may
# hold any character a file's name may hold. Exit codes: 2 no such video; else
# those of ffmpeg or cuelight.
set -eu
cd "$(dirname "$0")/../.."

video=${VIDEO:-}
sample=bin/sample.mp4 # git does not see it, and `make clean` removes it

say() { printf 'cuelight: %s\n' "$*" >&2; }

# Ten seconds with a clock, motion and a tone. Renamed when whole, so that an
# interrupted run leaves no half of it to the next.
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
	say "no VIDEO=… given: taking a sample, $sample"
fi
exec bin/cuelight run -- "$video"
