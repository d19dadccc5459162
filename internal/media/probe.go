package media

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// probeBytes bounds ffprobe's answer about formats and streams, whose strings
// are cut before: a thousand streams stay below it.
const probeBytes = 4 << 20

// Probe finds out what the file at path is. It reads the whole file once
// without decoding it, so that durations and frame counts are measured and not
// believed, and decodes a short sample.
//
// A [*Refused] error means that the file can never be published. Other errors
// are about this host or this attempt: the file is not there, a program is
// missing or was killed.
func (t Tools) Probe(ctx context.Context, path string) (*Info, error) {
	t = t.withStepCounter()
	abs, url, err := sourceURL(path)
	if err != nil {
		return nil, err
	}
	size, err := checkReadable(abs)
	if err != nil {
		return nil, fmt.Errorf("probe source: %w", err)
	}
	ctx, cancel := t.withTimeLimit(ctx, t.probeSeconds(size))
	defer cancel()
	raw, err := t.probeStreams(ctx, abs, url)
	if err != nil {
		return nil, fmt.Errorf("probe source: %w", err)
	}
	tracks, end, err := t.probePackets(ctx, abs, url, raw.Format.Name)
	if err != nil {
		return nil, fmt.Errorf("probe source: %w", err)
	}
	can, err := t.requiredDecoders(ctx)
	if err != nil {
		return nil, fmt.Errorf("probe source: %w", err)
	}
	raw.truncated = isTruncated(abs)
	info, err := describe(raw, tracks, size, can)
	if err == nil {
		err = checkDuration(info.Duration, cmp.Or(t.MaxDuration, DefaultMaxDuration).Seconds())
	}
	if err != nil {
		return nil, fmt.Errorf("probe source: %w", err)
	}
	left, err := unreadBytesAtEnd(abs, info.Container, size, end)
	if err == nil {
		err = checkUnread(info, left)
	}
	if err != nil {
		return nil, fmt.Errorf("probe source: %w", err)
	}
	t.probeDecoders = can
	if err := t.sample(ctx, abs, url, info); err != nil {
		return nil, fmt.Errorf("probe source: %w", err)
	}
	return info, nil
}

// readable makes sure that what ffprobe complains about later is the content.
func checkReadable(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !st.Mode().IsRegular() {
		return 0, &RejectedError{Reason: "the source is not a regular file"}
	}
	if st.Size() == 0 {
		return 0, &RejectedError{Reason: "the file is empty"}
	}
	if _, err := f.Read(make([]byte, 1)); err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (t Tools) probeStreams(ctx context.Context, abs, url string) (*rawProbe, error) {
	answer := &limitedBuffer{limit: probeBytes}
	args := append([]string{"-hide_banner", "-loglevel", "repeat+level+error", "-of", "json", "-show_format", "-show_streams"},
		input(url)...)
	out, err := t.run(ctx, command{tool: "ffprobe", purpose: "streams", args: args, source: abs, stdout: &stringLimiter{next: answer}})
	if exit := (*exitError)(nil); errors.As(err, &exit) && exit.signal == 0 {
		if trouble := hostError(out.tail); trouble != nil {
			return nil, fmt.Errorf("%w: %w", trouble, err)
		}
		return nil, rejectUnreadable(abs, out.tail)
	}
	if err != nil {
		return nil, err
	}
	if answer.overflowed {
		return nil, &RejectedError{Reason: "the file's headers are too large to be true"}
	}
	raw, err := parseProbe(answer.Bytes())
	if err != nil {
		return nil, err
	}
	raw.rejectedSize = parseRejectedSize(out.tail)
	return raw, nil
}

// refuseUnreadable explains a file that could not even be opened.
func rejectUnreadable(path, tail string) *RejectedError {
	last := tail[strings.LastIndexByte(tail, '\n')+1:]
	switch {
	case isAnimatedWebP(path):
		return &RejectedError{Reason: "the file is an animated WebP picture, which ffmpeg cannot read; send it as GIF, APNG or a video", Detail: last}
	// ffmpeg 7 opens no playlist that is not named like one.
	case strings.Contains(tail, "not on whitelist") || beginsLikePlaylist(path):
		return &RejectedError{Reason: "the file is a playlist, a script, a picture or text, not a video or audio file", Detail: last}
	case strings.Contains(tail, "encrypt") || hasEncryptedEntry(path):
		return &RejectedError{Reason: "the video is encrypted", Detail: tail}
	// ffprobe says so of anything that is named like an MP4 file.
	case strings.Contains(tail, "moov atom not found") && beginsWithBox(path) && isTruncated(path):
		return &RejectedError{Reason: "the file is truncated: its index (the moov box) is missing", Detail: tail}
	case strings.Contains(tail, "moov atom not found") && beginsWithBox(path):
		return &RejectedError{Reason: "the file is incomplete: its index (the moov box) is missing", Detail: tail}
	}
	return &RejectedError{Reason: "the file is not a video or audio file, or it is damaged beyond reading", Detail: tail}
}

// beginsWithBox reports whether a file begins as MP4 and QuickTime files do:
// with the length of a box and its type.
func beginsWithBox(path string) bool {
	head := firstBytes(path)
	if len(head) < 8 {
		return false
	}
	switch head[4:] {
	case "ftyp", "styp", "moov", "mdat", "free", "skip", "wide":
		return true
	}
	return false
}

// beginsLikePlaylist reports whether a file begins as HLS playlists do.
func beginsLikePlaylist(path string) bool {
	return strings.HasPrefix(firstBytes(path), "#EXTM3U")
}

// isAnimatedWebP reports whether a file is a WebP picture that moves: its header has
// a flag for that.
func isAnimatedWebP(path string) bool {
	const animated = 0x02
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [21]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return false
	}
	return string(head[:4]) == "RIFF" && string(head[8:16]) == "WEBPVP8X" && head[20]&animated != 0
}

// firstBytes are the first eight bytes of a file, or fewer where it has fewer or
// cannot be read.
func firstBytes(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 8)
	n, _ := io.ReadFull(f, head)
	return string(head[:n])
}

// hasEncryptedEntry looks for the sample entries of encrypted MP4 tracks in
// the first and last part of the file. It is asked only about files that
// ffprobe could not open, so a false hit changes nothing but the words.
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
	for _, entry := range []string{"encv", "enca"} {
		if bytes.Contains(head, []byte(entry)) || bytes.Contains(tail, []byte(entry)) {
			return true
		}
	}
	return false
}

func (t Tools) probePackets(ctx context.Context, abs, url, container string) (tracks map[int]*trackTiming, end int64, err error) {
	reader := newPacketReader(hasTimestampJumps(container))
	args := append([]string{
		"-hide_banner", "-loglevel", "repeat+level+error", "-of", "compact=p=0:nk=0",
		"-show_entries", "packet=stream_index,pts_time,dts_time,duration_time,flags,pos,size",
	}, input(url, resyncOptions(container)...)...)
	out, err := t.run(ctx, command{tool: "ffprobe", purpose: "packets", args: args, source: abs, stdout: reader})
	// A file that breaks off ends with a complaint; what came before counts.
	if err := ignoreSourceErrors(out, err); err != nil {
		return nil, 0, err
	}
	return reader.finish(), reader.end, nil
}

// jumpingClock reports whether timestamps may jump in such a container without
// a pause in the picture. ffmpeg smooths such jumps away while it transcodes.
func hasTimestampJumps(container string) bool {
	switch container {
	case "mpegts", "mpeg", "ogg":
		return true
	}
	return false
}

// limitedBuffer keeps what comes, up to a limit.
type limitedBuffer struct {
	bytes.Buffer
	limit      int
	overflowed bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.overflowed = b.overflowed || b.Len()+len(p) > b.limit; b.overflowed {
		return len(p), nil
	}
	return b.Buffer.Write(p)
}
