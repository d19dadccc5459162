package media

import (
	"slices"
	"strconv"
	"strings"
)

// Packets are the timestamps of the packets of a source's picture, from which [Tools.PlanChunks] computes
// those of its frames.
type Packets struct {
	timeBase   [2]int64
	times      []int64 // of frames to show, in ticks of timeBase
	keys       []int64 // of all keyframes
	unknown    int     // packets without a timestamp
	incomplete bool    // the source could not be read to its end
}

// newPackets returns those of a stream, to be added; nil if it is none with a picture.
func newPackets(s *rawStream) *Packets {
	num, den, _ := strings.Cut(s.TimeBase, "/")
	p := &Packets{}
	p.timeBase[0], _ = strconv.ParseInt(num, 10, 32)
	p.timeBase[1], _ = strconv.ParseInt(den, 10, 32)
	if s.Type != "video" || s.Disposition.Cover != 0 || p.timeBase[0] <= 0 || p.timeBase[1] <= 0 {
		return nil
	}
	return p
}

func (p *Packets) add(packet packet) {
	if !packet.hasTicks {
		p.unknown++
		return
	}
	if packet.key {
		p.keys = append(p.keys, packet.ticks)
	}
	if !packet.discard {
		p.times = append(p.times, packet.ticks)
	}
}

// check returns an error if the source cannot be divided because of its packets.
func (p *Packets) check() error {
	switch {
	case p == nil:
		return &indivisibleError{"it has too many packets or no clock"}
	case p.incomplete:
		return &indivisibleError{"it cannot be read to its end"}
	case p.unknown > 0:
		return &indivisibleError{"some of its packets have no timestamps"}
	}
	return nil
}

// sorted returns timestamps in order, counted from a tick.
func sorted(ticks []int64, zero int64) []int64 {
	ticks = slices.Clone(ticks)
	for i := range ticks {
		ticks[i] -= zero
	}
	slices.Sort(ticks)
	return ticks
}
