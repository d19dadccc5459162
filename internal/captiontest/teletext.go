package captiontest

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
)

const (
	tablePID    = 0x100
	teletextPID = 0x101
	clockPID    = 0x102
)

// Teletext returns a transport stream with nothing but subtitles in English on the page 888, as EN 300 472 and EN 300 706 say.
// There are 25 frames a second.
func Teletext(cues ...Cue) []byte {
	out := packet(0, section(0, []byte{0, 1, 0xe0 | tablePID>>8, tablePID & 0xff}))
	out = append(out, packet(tablePID, section(2, []byte{0xe0 | clockPID>>8, clockPID & 0xff, 0xf0, 0,
		6, 0xe0 | teletextPID>>8, teletextPID & 0xff, 0xf0, 7, 0x56, 5, 'e', 'n', 'g', 2 << 3, 0x88}))...)
	n := byte(0)
	show := func(frame int, text string) {
		pts := uint64(frame) * 90000 / 25
		clock := []byte{183, 0x10, byte(pts >> 25), byte(pts >> 17), byte(pts >> 9), byte(pts >> 1), byte(pts<<7) | 0x7e, 0}
		at := len(out)
		out = append(out, packet(clockPID, append(clock, slices.Repeat([]byte{0xff}, 184-len(clock))...))...)
		out[at+3] = 0x20 // no content
		at = len(out)
		out = append(out, packet(teletextPID, page(pts, text))...)
		out[at+3] |= n & 15 // the continuity counter
		n++
	}
	show(0, "")
	for _, c := range cues {
		show(c.From, c.Text)
		show(c.To, "")
	}
	return out
}

// page is a packet of an elementary stream: a page that replaces the one before, and the header of another, which ends it.
func page(pts uint64, text string) []byte {
	b := []byte{0, 0, 1, 0xbd, 0, 184 - 6, 0x84, 0x80, 36,
		byte(0x21 | pts>>29&0xe), byte(pts >> 22), byte(1 | pts>>14&0xfe), byte(pts >> 7), byte(1 | pts<<1)}
	b = append(append(b, slices.Repeat([]byte{0xff}, 31)...), 0x10) // stuffing, and the identifier of teletext
	const isErased, isSubtitle, isHeaderSuppressed, isSerial = 8, 8, 1, 1
	header := func(number byte) []byte {
		return append(hamming(number&15, number>>4, 0, isErased, 0, isSubtitle, isHeaderSuppressed, isSerial), strings.Repeat(" ", 32)...)
	}
	b = append(b, row(0, header(0x88))...)
	if text != "" {
		text = "\x0b\x0b" + text + "\x0a\x0a" // a box
		b = append(b, row(20, []byte(text+strings.Repeat(" ", 40-len(text))))...)
	}
	b = append(b, row(0, header(0xff))...)
	for len(b) < 184 {
		b = append(append(b, 0xff, 0x2c), slices.Repeat([]byte{0xff}, 0x2c)...)
	}
	return b
}

// row is a data unit with a packet of magazine 8.
func row(number byte, text []byte) []byte {
	b := append(hamming(number&1<<3, number>>1), text...)
	for i := range b {
		if i >= 10 || number > 0 && i >= 2 {
			b[i] = oddParity(b[i])
		}
		b[i] = bits.Reverse8(b[i])
	}
	return append([]byte{3, 0x2c, 0xe7, 0xe4}, b...)
}

// hamming returns Hamming 8/4 codes of four bits each.
func hamming(values ...byte) []byte {
	codes := []byte{0x15, 0x02, 0x49, 0x5e, 0x64, 0x73, 0x38, 0x2f, 0xd0, 0xc7, 0x8c, 0x9b, 0xa1, 0xb6, 0xfd, 0xea}
	for i, v := range values {
		values[i] = codes[v]
	}
	return values
}

// section is a table of a transport stream, with its checksum.
func section(table byte, content []byte) []byte {
	b := append([]byte{0, table, 0xb0, byte(len(content) + 9), 0, 1, 0xc1, 0, 0}, content...)
	sum := ^uint32(0)
	for _, v := range b[1:] {
		sum ^= uint32(v) << 24
		for range 8 {
			sum = sum<<1 ^ 0x04c11db7&-(sum>>31)
		}
	}
	b = binary.BigEndian.AppendUint32(b, sum)
	return append(b, slices.Repeat([]byte{0xff}, 184-len(b))...)
}

// packet is a packet of a transport stream with 184 bytes.
func packet(pid int, content []byte) []byte {
	return append([]byte{0x47, 0x40 | byte(pid>>8), byte(pid), 0x10}, content...)
}
