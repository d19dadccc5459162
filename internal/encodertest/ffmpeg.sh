#!/bin/sh
# Stands in for an ffmpeg with hardware encoders: see the package. REAL, STATE and MODES are set above.

encoder=
listing=
for argument do
	case $argument in
	-codecs) listing=1 ;;
	libx264 | h264_nvenc | h264_qsv | h264_vaapi) encoder=$argument ;;
	hevc_* | av1_*) echo "[error] Unknown encoder '$argument'" >&2 && exit 1 ;;
	esac
done
if [ -n "$listing" ]; then
	"$REAL" "$@" | sed '/h264_nvenc/!s/(encoders: libx264 /(encoders: libx264 h264_nvenc h264_qsv h264_vaapi /'
	exit
fi
[ -n "$encoder" ] && echo "$encoder" >>"$STATE"
case $encoder in
'' | libx264) exec "$REAL" "$@" ;;
esac

# The n-th word of MODES is for the n-th call with a hardware encoder, the last one also for later calls.
calls=$(grep -cv libx264 "$STATE")
mode=
for word in $MODES; do
	mode=$word
	calls=$((calls - 1))
	[ "$calls" -le 0 ] && break
done
case $mode in
start)
	echo "[$encoder @ 0x1] [error] OpenEncodeSessionEx failed: out of memory (10): (no details)" >&2
	echo "[error] Error initializing output stream 0:0 -- Error while opening encoder" >&2
	exit 1
	;;
stall) exec sleep 1000 ;;
esac

unexpected() {
	echo "[$encoder @ 0x1] [error] the stand-in does not expect $1 $2" >&2
	exit 1
}

# Each option of the hardware encoder must have the value that the pipeline gives it. Options that libx264
# does not have become those with the same effect.
left=$#
while [ "$left" -gt 0 ]; do
	option=$1 value=$2
	shift
	left=$((left - 1))
	case $option in
	-c:v | -rc | -cq | -b:v | -no-scenecut | -dpb_size | -global_quality | -look_ahead | -adaptive_i | -forced_idr | -idr_interval | \
		-flags | -rc_mode | -init_hw_device | -filter_hw_device | -filter_complex | -vf | -pix_fmt | -refs | -t)
		shift
		left=$((left - 1))
		;;
	*)
		set -- "$@" "$option"
		continue
		;;
	esac
	case "$encoder $option $value" in
	"$encoder -c:v $encoder") set -- "$@" -c:v libx264 -preset ultrafast ;;
	"$encoder -c:v "*) set -- "$@" -c:v "$value" ;;
	'h264_nvenc -rc vbr' | 'h264_nvenc -b:v 0' | 'h264_vaapi -rc_mode QVBR' | 'h264_qsv -look_ahead 0' | *' -idr_interval 0') ;;
	'h264_qsv -b:v '[1-9]* | 'h264_vaapi -b:v '[1-9]*) ;;
	'h264_nvenc -cq '* | 'h264_qsv -global_quality '*) set -- "$@" -crf "$value" ;;
	'h264_vaapi -global_quality '*) set -- "$@" -crf "$value" -sc_threshold 0 -forced-idr 1 ;;
	'h264_nvenc -no-scenecut 1' | 'h264_qsv -adaptive_i 0') set -- "$@" -sc_threshold 0 ;;
	'h264_qsv -forced_idr 1') set -- "$@" -forced-idr 1 ;;
	'h264_nvenc -dpb_size 3' | 'h264_qsv -refs 3') set -- "$@" -refs 3 ;;
	'h264_qsv -flags +cgop') set -- "$@" -flags +cgop ;;
	'h264_qsv -init_hw_device qsv=gpu,child_device=/dev/'* | 'h264_vaapi -init_hw_device vaapi=gpu:/dev/'* | \
		'h264_vaapi -filter_hw_device gpu' | 'h264_vaapi -vf format=nv12,hwupload') ;;
	*' -filter_complex '*)
		[ "$encoder" = h264_vaapi ] && value=$(printf %s "$value" | sed 's/,format=nv12,hwupload\[v/[v/g')
		case $value in *hwupload*) unexpected "$option" "$value" ;; esac
		[ "$mode" = green ] && value=$(printf %s "$value" | sed 's/,setsar=1/,drawbox=c=lime:t=fill,setsar=1/')
		set -- "$@" -filter_complex "$value"
		;;
	'h264_nvenc -pix_fmt yuv420p' | 'h264_qsv -pix_fmt nv12') set -- "$@" -pix_fmt yuv420p ;;
	*' -t '*)
		case $mode in middle | short) value=3 ;; esac
		set -- "$@" -t "$value"
		;;
	*) unexpected "$option" "$value" ;;
	esac
done

case $mode in
'' | ok | short | green) exec "$REAL" "$@" ;;
esac
"$REAL" "$@"
case $mode in
crash) kill -SEGV $$ ;;
esac
echo "[$encoder @ 0x1] [error] EncodePicture failed!: device does not exist (5): (no details)" >&2
exit 1
