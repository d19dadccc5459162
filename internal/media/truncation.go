package media

import (
	"encoding/binary"
	"io"
	"math/bits"
	"os"
)

// isTruncated reports whether a file ends before its container says: MP4 and
// QuickTime, RIFF (AVI, WAV) and Matroska give the length of what they hold.
func isTruncated(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false
	}
	head := firstBytes(path)
	switch {
	case beginsWithBox(path):
		return boxesTo(f, st.Size()) > st.Size()
	case len(head) == 8 && head[:4] == "RIFF":
		// A recorder that was killed has left 0, one that writes to a pipe the most.
		length := int64(binary.LittleEndian.Uint32([]byte(head[4:])))
		return length < 1<<31 && 8+length > st.Size()
	case len(head) == 8 && head[:4] == "\x1a\x45\xdf\xa3":
		return matroskaEnd(f) > st.Size()
	}
	return false
}

// boxesTo is where the last of the boxes at the top of an MP4 file should end.
func boxesTo(f io.ReaderAt, size int64) int64 {
	const most = 1 << 16 // boxes; a fragmented file has some thousands
	at := int64(0)
	for range most {
		var head [16]byte
		if n, _ := f.ReadAt(head[:], at); n < 8 {
			return at
		}
		length := int64(binary.BigEndian.Uint32(head[:4]))
		if length == 1 {
			length = int64(binary.BigEndian.Uint64(head[8:]) & (1<<62 - 1))
		}
		if length < 8 || at+length > size {
			return at + length // 0 means up to the end
		}
		at += length
	}
	return at
}

// matroskaEnd is where the segment, which follows the header, should end; 0 where
// its length is unknown.
func matroskaEnd(f io.ReaderAt) int64 {
	header, at, ok := elementLength(f, 4)
	if !ok {
		return 0
	}
	at += header
	var id [4]byte
	if _, err := f.ReadAt(id[:], at); err != nil || string(id[:]) != "\x18\x53\x80\x67" {
		return 0
	}
	length, at, ok := elementLength(f, at+4)
	if !ok {
		return 0
	}
	return at + length
}

// elementLength reads an EBML length and says where what it measures begins. It is
// not ok where the length is unknown, which all ones mean.
func elementLength(f io.ReaderAt, at int64) (length, start int64, ok bool) {
	var b [8]byte
	if n, _ := f.ReadAt(b[:], at); n == 0 || b[0] == 0 {
		return 0, 0, false
	}
	size := bits.LeadingZeros8(b[0]) + 1
	unknown := int64(1)<<(7*size) - 1
	for i, v := range b[:size] {
		if i == 0 {
			v &= byte(0xff >> size)
		}
		length = length<<8 | int64(v)
	}
	return length, at + int64(size), length != unknown
}
