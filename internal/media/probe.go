package media

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Probe measures the file at path. It reads the whole file once without
// decoding, to measure durations and frame counts, and decodes a short sample.
//
// A [*RejectedError] means that the file can never be published. Other errors
// are about this host or this attempt: the file or a program is missing, or a
// program was killed.
func (t Tools) Probe(ctx context.Context, path string) (*Info, error) {
	info, _, err := t.ProbePackets(ctx, path)
	return info, err
}

// ProbePackets is [Tools.Probe] for a source that may be divided: it also returns what [Tools.PlanChunks] needs,
// which is large and has no use afterwards.
func (t Tools) ProbePackets(ctx context.Context, path string) (*Info, *Packets, error) {
	info, packets, err := t.withStepCounter().probe(ctx, path)
	if err != nil {
		return nil, nil, fmt.Errorf("probe source: %w", err)
	}
	return info, packets, nil
}

func (t Tools) probe(ctx context.Context, path string) (*Info, *Packets, error) {
	source, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, err
	}
	size, err := checkReadable(source)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := t.withTimeLimit(ctx, t.probeSeconds(size))
	defer cancel()
	raw, packets, err := t.probeContent(ctx, source)
	if err != nil {
		return nil, nil, err
	}
	if joins := planJoins(raw, packets); joins != nil {
		t = t.joining(source, &Info{Size: size, Joins: joins})
		if raw, packets, err = t.probeContent(ctx, source); err != nil {
			return nil, nil, err
		}
		raw.joins = joins
	}
	info, err := t.describeSource(ctx, source, size, raw, packets)
	if err != nil || info.Video == nil {
		return info, nil, err
	}
	picture := packets.pictures[info.Video.Index]
	info.Video.FrameTimes = knownFrameTimes(info, picture)
	return info, picture, nil
}

// probeContent reads the headers and the packets of a source.
func (t Tools) probeContent(ctx context.Context, source string) (*rawProbe, *packetReader, error) {
	raw, err := t.probeStreams(ctx, source)
	if err != nil {
		return nil, nil, err
	}
	packets, err := t.probePackets(ctx, source, raw)
	return raw, packets, err
}

// describeSource describes a source by its headers and packets, and decodes a sample of it.
func (t Tools) describeSource(
	ctx context.Context, source string, size int64, raw *rawProbe, packets *packetReader,
) (info *Info, err error) {
	if t.probeDecoders, err = t.requiredDecoders(ctx); err != nil {
		return nil, err
	}
	raw.truncated = isTruncated(source)
	if info, err = describe(raw, packets.finish(), size, t.probeDecoders); err != nil {
		return nil, err
	}
	if err := checkDuration(info.Duration, cmp.Or(t.MaxDuration, DefaultMaxDuration).Seconds()); err != nil {
		return nil, err
	}
	unread, err := unreadBytesAtEnd(source, info.Container, size, packets.end)
	if err != nil {
		return nil, err
	}
	if err := checkUnread(info, unread); err != nil {
		return nil, err
	}
	if err := t.sample(ctx, source, info); err != nil {
		return nil, err
	}
	describeChapters(raw, info)
	return info, nil
}

// checkReadable separates errors of the file system from errors of the content.
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
		return 0, reject("", "the source is not a regular file")
	}
	if st.Size() == 0 {
		return 0, reject("", "the file is empty")
	}
	if _, err := f.Read(make([]byte, 1)); err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// probeBytes limits ffprobe's answer about formats and streams. A thousand
// streams fit, because their strings are cut first.
const probeBytes = 4 << 20

var errHeadersTooLarge = reject("", "the file's headers are larger than 4 MiB; the file is damaged or forged")

// probeStreams reads the headers, without the chapters if these are too many.
func (t Tools) probeStreams(ctx context.Context, source string) (*rawProbe, error) {
	raw, err := t.probeHeaders(ctx, source, ":chapter=start_time,end_time:chapter_tags=title")
	if errors.Is(err, errHeadersTooLarge) {
		if raw, err = t.probeHeaders(ctx, source, ""); err == nil {
			raw.hasMoreChapters = true
		}
	}
	return raw, err
}

func (t Tools) probeHeaders(ctx context.Context, source, chapters string) (*rawProbe, error) {
	answer := &limitedBuffer{limit: probeBytes}
	args := slices.Concat(quiet, []string{
		"-of", "json", "-show_format", "-show_streams",
		"-show_entries", "program=program_id:program_tags=service_name:program_stream=index" + chapters,
	}, input(source))
	out, err := t.run(ctx, command{
		tool: "ffprobe", purpose: "streams", args: args, source: source, stdout: &stringLimiter{next: answer},
	})
	exit, err := exitBySource(err)
	switch {
	case err != nil:
		return nil, err
	case exit != nil:
		return nil, rejectUnreadable(source, exit.tail)
	case answer.overflowed:
		return nil, errHeadersTooLarge
	}
	raw, err := parseProbe(answer.Bytes())
	if err != nil {
		return nil, err
	}
	raw.rejectedSize = parseRejectedSize(out.tail)
	return raw, nil
}

func (t Tools) probePackets(ctx context.Context, source string, raw *rawProbe) (*packetReader, error) {
	pictures := make(map[int]*Packets)
	for i := range raw.Streams {
		pictures[raw.Streams[i].Index] = newPackets(&raw.Streams[i])
	}
	reader := newPacketReader(hasTimestampJumps(raw.Format.Name), pictures)
	if raw.Format.Name == "mpegts" {
		reader.grid.size = transportPacketSize(source)
	}
	args := slices.Concat(quiet, []string{
		"-of", "compact=p=0:nk=0",
		"-show_entries", "packet=stream_index,pts,pts_time,dts_time,duration_time,flags,pos,size",
	}, input(source, resyncOptions(raw.Format.Name)...))
	_, err := t.run(ctx, command{tool: "ffprobe", purpose: "packets", args: args, source: source, stdout: reader})
	// ffprobe ends with an error at a damaged place; the packets before it count.
	exit, err := exitBySource(err)
	if err != nil {
		return nil, err
	}
	for _, p := range reader.pictures {
		if p != nil {
			p.incomplete = exit != nil
		}
	}
	return reader, nil
}

// hasTimestampJumps reports whether timestamps in this container may jump
// without a pause in the picture. ffmpeg removes such jumps when it transcodes.
func hasTimestampJumps(container string) bool {
	switch container {
	case "mpegts", "mpeg", "ogg":
		return true
	}
	return false
}

// resyncOptions makes ffmpeg skip a damaged part of any length in containers
// where it would otherwise take it for the end. ffmpeg's versions differ in that.
func resyncOptions(container string) []string {
	if container == "mpegts" {
		return []string{"-resync_size", "1073741824"}
	}
	return nil
}

// limitedBuffer keeps what is written, up to a limit.
type limitedBuffer struct {
	bytes.Buffer
	limit      int
	overflowed bool
}

// Write keeps p unless that exceeds the limit. It never returns an error, so the child can finish.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.overflowed = b.overflowed || b.Len()+len(p) > b.limit; b.overflowed {
		return len(p), nil
	}
	return b.Buffer.Write(p)
}
