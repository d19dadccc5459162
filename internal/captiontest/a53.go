// Package captiontest makes captions as broadcasts have them, for tests: inside the pictures, and as teletext. ffmpeg
// makes neither.
package captiontest

import (
	"bytes"
	"math/bits"
)

// Cue is a text, the frame from which on it is shown, and the frame at which it is removed. A frame before the first has room for two
// letters, and six are needed for more.
type Cue struct {
	Text     string
	From, To int
	IsTop    bool // in the first row; not of teletext
}

// InsertA53 returns a file of H.264 with captions in front of each picture, as ATSC A/53 says, and texts of CEA-608 that pop on.
// The pictures are in the order in which they are shown.
func InsertA53(file []byte, cues ...Cue) []byte {
	pairs := map[int][2]byte{}
	for _, c := range cues {
		c.popOn(pairs)
	}
	var out []byte
	frame := 0
	for _, unit := range bytes.Split(file, []byte{0, 0, 1})[1:] {
		if kind := unit[0] & 31; (kind == 1 || kind == 5) && unit[1] >= 0x80 { // the first slice of a picture
			out = append(out, message(pairs[frame])...)
			frame++
		}
		out = append(append(out, 0, 0, 1), unit...)
	}
	return out
}

// popOn adds two bytes for each frame.
func (c Cue) popOn(pairs map[int][2]byte) {
	command := func(at int, a, b byte) { pairs[at], pairs[at+1] = [2]byte{a, b}, [2]byte{a, b} } // it comes twice
	text := c.Text
	if len(text)%2 == 1 {
		text += "\x00"
	}
	at := c.From - len(text)/2 - 6
	command(at, 0x14, 0x20)   // resume caption loading
	command(at+2, 0x14, 0x2e) // erase the memory that is not shown
	command(at+4, 0x14, 0x70) // row 15
	if c.IsTop {
		command(at+4, 0x11, 0x50) // row 1
	}
	for i := range len(text) / 2 {
		pairs[at+6+i] = [2]byte{text[2*i], text[2*i+1]}
	}
	command(c.From, 0x14, 0x2f) // end of caption: show it
	command(c.To, 0x14, 0x2c)   // erase what is shown
}

// message is a supplemental enhancement information with two bytes of field 1, and none of field 2.
func message(pair [2]byte) []byte {
	data := []byte{0xb5, 0, 0x31, 'G', 'A', '9', '4', 3, 0x42, 0xff, 0xfc, oddParity(pair[0]), oddParity(pair[1]), 0xfd, 0x80, 0x80, 0xff}
	return append(append([]byte{0, 0, 0, 1, 6, 4, byte(len(data))}, data...), 0x80)
}

func oddParity(b byte) byte { return b | byte(1-bits.OnesCount8(b)%2)<<7 }
