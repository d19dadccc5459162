#!/bin/sh
# Stands in for whisper-cli: see whispertest.go.
while [ $# -gt 0 ]; do
	case $1 in
	-m) model=$2 && shift ;;
	-l) language=$2 && shift ;;
	-f) sound=$2 && shift ;;
	-of) out=$2 && shift ;;
	-t) shift ;;
	-oj) json=yes ;;
	--help) exit 0 ;;
	*) echo "error: unknown argument: $1" >&2 && exit 0 ;;
	esac
	shift
done
echo "$language" 2>/dev/null >>"$0.calls"
while [ -e "$0.shut" ]; do sleep 0.05; done
[ "$(cat "$model")" = "a model" ] || { echo "error: failed to initialize whisper context" >&2 && exit 3; }
# Of the header: mono, 16 kHz, 16 bits.
[ "$(od -An -tu2 -j22 -N14 "$sound" | tr -s ' ')" = " 1 16000 0 32000 0 2 16" ] ||
	{ echo "error: failed to read audio file '$sound'" >&2 && exit 0; }

case $language in
auto)
	language=de
	texts='{"timestamps": {"from": "00:00:00,000", "to": "00:00:00,400"}, "offsets": {"from": 0, "to": 400}, "text": " Guten\tTag, <b>"},
		{"timestamps": {"from": "00:00:00,400", "to": "00:00:00,800"}, "offsets": {"from": 400, "to": 800}, "text": " [Musik]"}'
	echo '[00:00:00.000 --> 00:00:00.400]   Guten Tag'
	;;
fr) texts='{"offsets": {"from": 0, "to": 800}, "text": " [BLANK_AUDIO]"}' ;;
eo) echo "error: unknown language 'eo'" >&2 && exit 0 ;;
la) echo "error: failed to initialize whisper context" >&2 && exit 3 ;;
*) texts='{"offsets": {"from": 0, "to": 400}, "text": " Guten Tag"}' ;;
esac
[ "$json" ] && printf '{"systeminfo": "", "params": {"language": "auto"}, "result": {"language": "%s"}, "transcription": [%s]}\n' \
	"$language" "$texts" >"$out.json"
