package media

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
)

// readBox reads the header of the MP4 box at offset. A length of 0 means "to
// the end of the file".
func readBox(f io.ReaderAt, offset int64) (kind string, length int64, err error) {
	var head [16]byte
	if _, err := f.ReadAt(head[:8], offset); err != nil {
		return "", 0, err
	}
	length = int64(binary.BigEndian.Uint32(head[:4]))
	if length == 1 {
		if _, err := f.ReadAt(head[8:], offset+8); err != nil {
			return "", 0, err
		}
		length = int64(min(binary.BigEndian.Uint64(head[8:]), 1<<62))
	}
	return string(head[4:8]), length, nil
}

// openComplete opens an MP4 file whose boxes fill it exactly. It rejects a file
// that was cut short, or that ends in zeros because its end was never written.
func openComplete(file string) (*os.File, int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	size, err := checkBoxes(f)
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

func checkBoxes(f *os.File) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size := st.Size()
	if size == 0 {
		return 0, fmt.Errorf("the file is empty")
	}
	for offset := int64(0); offset < size; {
		kind, length, err := readBox(f, offset)
		if err != nil {
			return 0, fmt.Errorf("the file is cut short")
		}
		if length < 8 || length > size-offset {
			return 0, fmt.Errorf("the box %q has the wrong length", strings.ToValidUTF8(kind, "?"))
		}
		offset += length
	}
	return size, nil
}

// firstFragmentOffset is where the first fragment of a segment file begins.
func firstFragmentOffset(f io.ReaderAt) (int64, error) {
	for offset := int64(0); ; {
		kind, length, err := readBox(f, offset)
		if err != nil {
			return 0, fmt.Errorf("find the first fragment: %w", err)
		}
		if kind == "moof" {
			return offset, nil
		}
		if length < 8 {
			return 0, fmt.Errorf("the box %q has no length", kind)
		}
		offset += length
	}
}

// declaredEnd is where the last top-level box of an MP4 file should end.
func declaredEnd(f io.ReaderAt, size int64) int64 {
	const maxBoxes = 1 << 16 // a fragmented file has some thousands
	offset := int64(0)
	for range maxBoxes {
		_, length, err := readBox(f, offset)
		if err != nil {
			return offset
		}
		if length < 8 || offset+length > size {
			return offset + length
		}
		offset += length
	}
	return offset
}

// boxesEnd is how far a file consists of boxes.
func boxesEnd(f io.ReaderAt, size int64) int64 {
	for offset := int64(0); offset < size; {
		kind, length, err := readBox(f, offset)
		switch {
		case err != nil:
			return offset
		case length == 0 && kind[0] != 0, length > size-offset:
			return size // the last box: open-ended, or cut short
		case length < 8:
			return offset
		}
		offset += length
	}
	return size
}

// newBox encodes a box.
func newBox(kind, content string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(content)))
	return append(append(b, kind...), content...)
}
