package media

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/bits"
	"os"
)

// isTruncated reports whether a file ends before its container says so. MP4 and
// QuickTime, RIFF (AVI, WAV) and Matroska declare their length.
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
	head := firstBytes(path, 8)
	switch {
	case beginsWithBox(head):
		return declaredEnd(f, st.Size()) > st.Size()
	case len(head) == 8 && head[:4] == "RIFF":
		// A killed recorder leaves 0; one that writes to a pipe leaves the maximum.
		length := int64(binary.LittleEndian.Uint32([]byte(head[4:])))
		return length < 1<<31 && 8+length > st.Size()
	case len(head) == 8 && head[:4] == "\x1a\x45\xdf\xa3":
		return matroskaEnd(f) > st.Size()
	}
	return false
}

// matroskaEnd is where the segment after the header should end; 0 if its length
// is unknown.
func matroskaEnd(f io.ReaderAt) int64 {
	header, offset, ok := elementLength(f, 4)
	if !ok {
		return 0
	}
	offset += header
	var id [4]byte
	if _, err := f.ReadAt(id[:], offset); err != nil || string(id[:]) != "\x18\x53\x80\x67" {
		return 0
	}
	length, offset, ok := elementLength(f, offset+4)
	if !ok {
		return 0
	}
	return offset + length
}

// elementLength reads an EBML length and returns where the element's content
// starts. ok is false if the length is unknown, which all ones mean.
func elementLength(f io.ReaderAt, offset int64) (length, start int64, ok bool) {
	var b [8]byte
	if n, _ := f.ReadAt(b[:], offset); n == 0 || b[0] == 0 {
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
	return length, offset + int64(size), length != unknown
}

const (
	// More unread bytes after the last packet than this share of the file, and
	// than minUnreadBytes, are not an index or tags.
	minUnreadShare, minUnreadBytes = 0.1, 64 << 10
	// paddingProbe is how many zero bytes at the end show that the file was
	// only made longer than its content.
	paddingProbe = 4 << 10
)

// unreadBytesAtEnd counts the bytes after the last packet, which ends at end.
// It returns 0 if their number is usual; otherwise the demuxer gave up early.
func unreadBytesAtEnd(path, container string, size, end int64) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	switch container {
	case "mov,mp4,m4a,3gp,3g2,mj2":
		end = boxesEnd(f, size) // an index may be anywhere, but is in a box
	case "mpegts", "mpeg", "ogg", "matroska,webm", "flv", "asf", "avi", "mxf":
	default:
		return 0, nil
	}
	unread := size - end
	if end <= 0 || unread < minUnreadBytes || float64(unread) < minUnreadShare*float64(size) {
		return 0, nil
	}
	tail := make([]byte, paddingProbe)
	if _, err := f.ReadAt(tail, size-paddingProbe); err != nil {
		return 0, err
	}
	if len(bytes.Trim(tail, "\x00")) == 0 {
		return 0, nil
	}
	return unread, nil
}

// checkUnread rejects a file of which most cannot be read, and adds a warning
// if a part cannot.
func checkUnread(info *Info, unread int64) error {
	share := 1 - float64(unread)/float64(info.Size)
	if share < minReadableShare {
		return reject("", "the file is damaged: only %.0f %% of it can be read; send an intact copy", 100*share)
	}
	if unread > 0 {
		info.warn("the source is damaged: the last %.0f %% of the file cannot be read", 100*(1-share))
	}
	return nil
}
