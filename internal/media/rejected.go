package media

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// reject returns a RejectedError with a formatted reason.
func reject(detail, format string, args ...any) *RejectedError {
	return &RejectedError{Reason: fmt.Sprintf(format, args...), Detail: detail}
}

// rejectUnreadable explains why ffprobe could not open a file.
func rejectUnreadable(path, tail string) *RejectedError {
	lastLine := tail[strings.LastIndexByte(tail, '\n')+1:]
	head := firstBytes(path, 21)
	noIndex := strings.Contains(tail, "moov atom not found") && beginsWithBox(head)
	switch {
	case isAnimatedWebP(head):
		return reject(lastLine, "the file is an animated WebP picture, which ffmpeg cannot read; "+
			"send it as GIF, APNG or a video")
	// ffmpeg 7 opens no playlist without a playlist's file name.
	case isTextFormat(refusedFormat(tail)) || strings.HasPrefix(head, "#EXTM3U"):
		return reject(lastLine, "the file is a playlist, a script, a picture or text; send a video or audio file")
	case refusedFormat(tail) != "":
		return reject(lastLine, "the format %q is not supported; send MP4, QuickTime, Matroska or WebM", refusedFormat(tail))
	case strings.Contains(tail, "encrypt") || hasEncryptedEntry(path):
		return reject(tail, "the video is encrypted; send a copy without encryption")
	case noIndex && isTruncated(path):
		return reject(tail, "the file is truncated: its index (the moov box) is missing; send the complete file")
	case noIndex:
		return reject(tail, "the file is incomplete: its index (the moov box) is missing; send the complete file")
	}
	return reject(tail, "the file is not a video or audio file, or it is damaged beyond reading; "+
		"send an intact video or audio file")
}

var formatMessage = regexp.MustCompile(`\[([\w,]+)\][^\n]*not on whitelist`)

// refusedFormat is ffmpeg's name for a format that is not permitted, or "".
func refusedFormat(tail string) string {
	if m := formatMessage.FindStringSubmatch(tail); m != nil {
		return m[1]
	}
	return ""
}

// isTextFormat reports whether files of a format refer to others, or have neither frames nor sound: pictures,
// subtitles and other texts.
func isTextFormat(format string) bool {
	return strings.HasSuffix(format, "_pipe") || strings.HasPrefix(format, "image2") || slices.Contains([]string{
		"hls", "applehttp", "dash", "concat", "imf", "sdp", "rtsp", "rtp", "webm_dash_manifest", "ffmetadata", "tty", "bin", "xbin",
		"adf", "idf", "aqtitle", "ass", "jacosub", "lrc", "mcc", "microdvd", "mpl2", "mpsub", "pjs", "realtext", "sami", "scc",
		"srt", "stl", "subviewer", "subviewer1", "sup", "tedcaptions", "tiff", "ico", "fits", "vobsub", "vplayer", "webvtt", "txd",
	}, format)
}

// beginsWithBox reports whether a file begins like MP4 and QuickTime: with the
// length and type of a box. ffprobe reports a missing index ("moov") for every
// file that is named like an MP4.
func beginsWithBox(head string) bool {
	return len(head) >= 8 && slices.Contains([]string{"ftyp", "styp", "moov", "mdat", "free", "skip", "wide"}, head[4:8])
}

// isAnimatedWebP reads the animation flag of a WebP header.
func isAnimatedWebP(head string) bool {
	const animated = 0x02
	return len(head) >= 21 && head[:4] == "RIFF" && head[8:16] == "WEBPVP8X" && head[20]&animated != 0
}

// firstBytes returns the first n bytes of a file, or fewer if it has fewer or
// cannot be read.
func firstBytes(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, n)
	n, _ = io.ReadFull(f, head)
	return string(head[:n])
}

// hasEncryptedEntry searches the first and last MiB of a file for the sample
// entries of encrypted MP4 tracks. It is used only for files that ffprobe could
// not open, so a false positive changes only the explanation.
func hasEncryptedEntry(path string) bool {
	const part = 1 << 20
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, part))
	if err != nil {
		return false
	}
	var tail []byte
	if st, err := f.Stat(); err == nil && st.Size() > part {
		tail, _ = io.ReadAll(io.NewSectionReader(f, max(part, st.Size()-part), part))
	}
	return describesEncrypted(head) || describesEncrypted(tail)
}

// describesEncrypted reports whether a part of a file has a box of sample descriptions whose first entry is encrypted.
func describesEncrypted(part []byte) bool {
	const kind, entry, end = 4, 16, 20 // after the box's type: its version and flags, its count, the entry's size and type
	for {
		i := bytes.Index(part, []byte("stsd"))
		if i < 0 || len(part) < i+end {
			return false
		}
		box := part[i : i+end]
		if first := string(box[entry:]); string(box[kind:kind+4]) == "\x00\x00\x00\x00" && (first == "encv" || first == "enca") {
			return true
		}
		part = part[i+kind:]
	}
}
