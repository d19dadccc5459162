package media

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/internal/childproc"
)

// packetTimes are the timestamps of a video stream's packets, in ticks of its clock.
type packetTimes struct {
	io.Writer
	timeBase [2]int64
	times    []int64 // of frames to show
	keys     []int64 // of all keyframes
	unknown  int     // packets without a timestamp
}

func newPacketTimes() *packetTimes {
	p := &packetTimes{}
	p.Writer = childproc.Lines(p.line)
	return p
}

func (p *packetTimes) line(line []byte) {
	pts, known, flags := int64(0), false, ""
	for field := range bytes.SplitSeq(line, []byte("|")) {
		name, value, _ := strings.Cut(string(field), "=")
		switch name {
		case "time_base":
			num, den, _ := strings.Cut(value, "/")
			p.timeBase[0], _ = strconv.ParseInt(num, 10, 32)
			p.timeBase[1], _ = strconv.ParseInt(den, 10, 32)
		case "pts":
			n, err := strconv.ParseInt(value, 10, 64)
			pts, known = n, err == nil
		case "flags":
			flags = value
		}
	}
	switch {
	case flags == "":
		return // not a packet
	case !known:
		p.unknown++
		return
	}
	if strings.Contains(flags, "K") {
		p.keys = append(p.keys, pts)
	}
	if !strings.Contains(flags, "D") {
		p.times = append(p.times, pts)
	}
}

// readPackets reads the timestamps of all packets of the picture. Probe has read them, too, but keeps nothing
// for each packet.
func (t Tools) readPackets(ctx context.Context, source string, info *Info) (*packetTimes, error) {
	p := newPacketTimes()
	args := slices.Concat(quiet, []string{
		"-of", "compact=p=0:nk=0", "-select_streams", strconv.Itoa(info.Video.Index),
		"-show_entries", "packet=pts,flags:stream=time_base",
	}, input(source))
	_, err := t.run(ctx, command{tool: "ffprobe", purpose: "packets", args: args, source: source, stdout: p})
	exit, err := exitBySource(err)
	switch {
	case err != nil:
		return nil, err
	case exit != nil:
		return nil, &indivisibleError{"it cannot be read to its end"}
	case p.unknown > 0:
		return nil, &indivisibleError{"some of its packets have no timestamps"}
	case p.timeBase[0] <= 0 || p.timeBase[1] <= 0:
		return nil, fmt.Errorf("ffprobe names no time base of stream %d", info.Video.Index)
	}
	return p, nil
}
