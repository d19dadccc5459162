package media

import (
	"context"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/childproc"
)

// MP4Name is the name of a video in one file, and PreviewName that of a silent clip of it.
const (
	MP4Name     = "video.mp4"
	PreviewName = "preview.mp4"
)

// MP4File describes an MP4 file that is not fragmented: an H.264 rendition with a sound, or one of its segments without.
type MP4File struct {
	Name string
	// Renditions are those whose packets it has, the picture first. None: there is no such file.
	Renditions []Rendition

	isClip bool
	clipAt float64 // a time in the segment, in seconds
}

// MP4 describes the file with the H.264 rendition of a height, as [AtMost] chooses it, and the default sound.
func (o *Output) MP4(height int) MP4File {
	f := MP4File{Name: MP4Name, Renditions: o.h264(height)}
	i := slices.IndexFunc(o.Audio, func(r Rendition) bool { return r.Channels == 2 })
	if i >= 0 && len(f.Renditions) > 0 {
		f.Renditions = append(f.Renditions, o.Audio[i])
	}
	return f
}

// Preview describes the file with that segment of a small H.264 rendition that is shown at a time in seconds, or with the last one.
func (o *Output) Preview(at float64) MP4File {
	const height = 360
	return MP4File{Name: PreviewName, Renditions: o.h264(height), isClip: true, clipAt: at}
}

func (o *Output) h264(height int) []Rendition {
	isOther := func(r Rendition) bool { return !strings.HasPrefix(r.Codecs, "avc1.") }
	return AtMost(slices.DeleteFunc(slices.Clone(o.Video), isOther), height)
}

// AtMost returns that of some renditions or rungs, the largest first, which has a height: the nearest one below if there is none, or the
// smallest.
func AtMost[R interface{ NominalHeight() int }](list []R, height int) []R {
	i := slices.IndexFunc(list, func(r R) bool { return r.NominalHeight() <= height })
	if i < 0 {
		i = max(len(list)-1, 0)
	}
	return list[i:min(i+1, len(list))]
}

// NominalHeight is that of the rung.
func (r Rendition) NominalHeight() int { return Rung{Name: r.Name}.NominalHeight() }

// WriteMP4 writes the file into dir, which has the renditions. It copies their packets and encodes nothing. What describes them comes
// first in the file, so that players begin while they load the rest. Before the file gets its name, ffprobe must find the same packets
// in it as in the renditions, at the same times; otherwise the error wraps [ErrMismatch].
func (t Tools) WriteMP4(ctx context.Context, dir string, f MP4File) error {
	ctx, cancel := t.withTimeLimit(ctx, f.Renditions[0].Duration)
	defer cancel()
	t = t.withStepCounter()
	err := replaceFile(filepath.Join(dir, f.Name), func(work string) (made string, err error) {
		tracks := make([]*mp4Track, len(f.Renditions))
		for i, r := range f.Renditions {
			if tracks[i], err = t.mp4Track(ctx, dir, r, f); err != nil {
				return "", err
			}
		}
		made = filepath.Join(work, f.Name)
		if err := t.writeTracks(ctx, made, tracks); err != nil {
			return "", spaceError(err)
		}
		return made, t.checkTracks(ctx, made, tracks)
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name, err)
	}
	return nil
}

// checkTracks compares a file with the renditions, as ffprobe reads both.
func (t Tools) checkTracks(ctx context.Context, file string, tracks []*mp4Track) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	found, err := t.listPackets(ctx, in, 0)
	for i, k := range tracks {
		var wanted map[int]packetList
		if err == nil {
			wanted, err = t.listPackets(ctx, &renditionReader{open: openIn(k.dir), names: k.names}, k.start)
		}
		if err != nil {
			return err
		}
		want := wanted[0]
		if want.ticks = k.shown; len(found) != len(tracks) || found[i] != want {
			return fmt.Errorf("%w: stream %d of %d is %+v instead of %+v", ErrMismatch, i, len(found), found[i], want)
		}
	}
	return err
}

// packetList is what ffprobe finds in a stream.
type packetList struct {
	packets int64
	sum     uint64 // of the time and the data of each packet
	ticks   int64  // how long the stream is shown, if that is not fragmented
}

// listPackets reads an MP4 file from its beginning to its end, and subtracts zero from the times.
func (t Tools) listPackets(ctx context.Context, in io.Reader, zero int64) (map[int]packetList, error) {
	streams, table := make(map[int]packetList), crc64.MakeTable(crc64.ECMA)
	reader := childproc.Lines(func(line []byte) {
		var index int
		var ticks int64
		if p, ok := parsePacket(line); ok {
			if p.ticks -= zero; p.ticks < 0 {
				p.hash = "" // ffprobe does not read what an edit list hides
			}
			s := streams[p.stream]
			s.packets, s.sum = s.packets+1, crc64.Update(s.sum, table, fmt.Append(nil, p.ticks, p.size, p.key, p.hash))
			streams[p.stream] = s
		} else if n, _ := fmt.Sscanf(string(line), "index=%d|duration_ts=%d", &index, &ticks); n == 2 {
			s := streams[index]
			s.ticks = ticks
			streams[index] = s
		}
	})
	args := slices.Concat(quiet, []string{"-protocol_whitelist", "pipe", "-f", "mov", "-show_data_hash", "CRC32", "-of", "compact=p=0:nk=0",
		"-show_entries", "packet=stream_index,pts,size,flags,data_hash:stream=index,duration_ts", "-i", "pipe:0"})
	_, err := t.run(ctx, command{tool: "ffprobe", purpose: "MP4 packets", args: args, stdin: in, stdout: reader})
	return streams, err
}
