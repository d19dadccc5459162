package media

import (
	"io"
	"os"
	"slices"
)

const (
	transportSync   = 0x47
	transportHeader = 4
	bluRayPacket    = 192 // four bytes of time precede the packet
	maxPID          = 0x1fff

	privateStream = 0x1bd // start code

	flvHeader          = 11
	flvAudio, flvVideo = 8, 9
	flvTypeMask        = 0x1f
)

// transportPacketSize finds the size of a transport stream's packets; 0 if it is unknown.
func transportPacketSize(path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	b := make([]byte, 64<<10)
	n, _ := io.ReadFull(f, b)
	b = b[:n]
	for i := range b {
		for _, size := range []int{188, bluRayPacket, 204} {
			count := 0
			for at := i; at < len(b) && b[at] == transportSync && count < 5; at += size {
				count++
			}
			if count == 5 {
				return int64(size)
			}
		}
	}
	return 0
}

// packetGrid are the offsets from which on packets of one size follow one another.
type packetGrid struct {
	size   int64 // 0: there is no grid
	starts []int64
}

func (g *packetGrid) add(offset int64) {
	if g.size == 0 || len(g.starts) > maxSplices {
		return
	}
	n, found := slices.BinarySearch(g.starts, offset)
	if found || n > 0 && (offset-g.starts[n-1])%g.size == 0 {
		return
	}
	g.starts = slices.Insert(g.starts, n, offset)
}

// isPES reports whether a packet of picture or sound begins there.
func isPES(b []byte) bool {
	return b[0] == 0 && b[1] == 0 && b[2] == 1 && (b[3] >= 0xc0 && b[3] <= 0xef || b[3] == privateStream&0xff || b[3] == 0xfd)
}

// shiftPES shifts the timestamps of a packet of MPEG-1 or MPEG-2.
func shiftPES(b []byte, shift int64) {
	if shift == 0 || len(b) < 9 || !isPES(b) {
		return
	}
	at, stamps := 9, int(b[7]>>6) // 2: one timestamp, 3: two
	if b[6]&0xc0 != 0x80 {        // MPEG-1
		at = 6
		for at < len(b) && b[at] == 0xff {
			at++
		}
		if at < len(b) && b[at]&0xc0 == 0x40 {
			at += 2
		}
		if at >= len(b) {
			return
		}
		stamps = int(b[at] >> 4)
	}
	for ; stamps >= 2 && stamps <= 3 && at+5 <= len(b); stamps-- {
		shiftStamp(b[at:], shift)
		at += 5
	}
}

// shiftStamp shifts a timestamp of 33 bits among marker bits.
func shiftStamp(b []byte, shift int64) {
	t := int64(b[0]&0x0e)<<29 | int64(b[1])<<22 | int64(b[2]&0xfe)<<14 | int64(b[3])<<7 | int64(b[4])>>1
	t += shift
	b[0] = b[0]&^0x0e | byte(t>>29)&0x0e
	b[1] = byte(t >> 22)
	b[2] = b[2]&1 | byte(t>>14)&0xfe
	b[3] = byte(t >> 7)
	b[4] = b[4]&1 | byte(t<<1)
}
