package media

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
)

// joining returns Tools whose children read a source with its joins.
func (t Tools) joining(source string, info *Info) Tools {
	if info.Joins == nil {
		return t
	}
	var input Input = fileInput{source, info.Size}
	if t.Source != nil && t.Source.Path == source {
		input = t.Source.Input
	}
	t.Source = &ServedSource{Path: source, Input: newJoinedInput(input, info.Joins)}
	return t
}

// fileInput is a file as Input. It needs no end.
type fileInput struct {
	path string
	size int64
}

// Size is that at the probe.
func (f fileInput) Size() int64 { return f.size }

// ReadAt opens the file for every read, which costs little compared with the read.
func (f fileInput) ReadAt(_ context.Context, p []byte, offset int64) (int, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return file.ReadAt(p, offset)
}

// joinedInput is a source in which timestamps and PIDs are changed as its joins say.
type joinedInput struct {
	Input
	joins   *Joins
	splices map[int][]Splice // by ID
}

func newJoinedInput(input Input, joins *Joins) *joinedInput {
	j := &joinedInput{Input: input, joins: joins, splices: map[int][]Splice{}}
	for _, s := range joins.Splices {
		j.splices[s.ID] = append(j.splices[s.ID], s)
	}
	return j
}

// joinMargin is more than the bytes from the start of a packet to the end of its timestamps.
const joinMargin = 256

// ReadAt reads around what is wanted, because the packets there may begin or end outside of it.
func (j *joinedInput) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	begin := max(0, offset-joinMargin)
	w := &joinWindow{joinedInput: j, ctx: ctx, at: begin, b: make([]byte, offset-begin+int64(len(p))+joinMargin)}
	n, err := j.Input.ReadAt(ctx, w.b, begin)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	w.b = w.b[:n]
	for i := 0; i < n; {
		size, err := w.change(i)
		if err != nil {
			return 0, err
		}
		i += int(max(1, size))
	}
	if n = copy(p, w.b[min(offset-begin, int64(n)):]); n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// joinWindow is the part of a source that is read at once.
type joinWindow struct {
	*joinedInput
	ctx context.Context
	at  int64 // offset of b in the file
	b   []byte
}

// change changes the packet that begins at b[i] and returns its size; 0 if none begins there.
func (w *joinWindow) change(i int) (size int64, err error) {
	switch {
	case w.joins.PacketSize > 0:
		return w.changeTransportPacket(i), nil
	case w.b[i] == 0:
		return w.changePES(i)
	case w.b[i]&flvTypeMask == flvAudio || w.b[i]&flvTypeMask == flvVideo:
		return w.changeTag(i)
	}
	return 0, nil
}

// splice returns the splice of the packet at b[i]; the zero value if there is none.
func (w *joinWindow) splice(id, i int) Splice {
	list := w.splices[id]
	n, _ := slices.BinarySearchFunc(list, w.at+int64(i)+1, func(s Splice, at int64) int { return int(min(1, max(-1, s.From-at))) })
	if n == 0 {
		return Splice{}
	}
	return list[n-1]
}

// changeTransportPacket returns how far it is to the next packet.
func (w *joinWindow) changeTransportPacket(i int) int64 {
	at, rest := w.at+int64(i), int64(0)
	n, found := slices.BinarySearch(w.joins.Grid, at)
	if n == 0 && !found {
		return w.joins.Grid[0] - at
	}
	if !found {
		rest = (at - w.joins.Grid[n-1]) % w.joins.PacketSize
	} else {
		n++
	}
	size := w.joins.PacketSize - rest
	if n < len(w.joins.Grid) {
		size = min(size, w.joins.Grid[n]-at)
	}
	p := w.b[i:min(len(w.b), i+int(size))]
	if w.joins.PacketSize == bluRayPacket {
		p = p[min(4, len(p)):] // without its time of arrival
	}
	if rest > 0 || len(p) < transportHeader || p[0] != transportSync {
		return size
	}
	pid := binary.BigEndian.Uint16(p[1:])
	s := w.splice(int(pid&maxPID), i)
	begins, payload := pid&0x4000 != 0, transportHeader
	if s.To > 0 {
		binary.BigEndian.PutUint16(p[1:], pid&^maxPID|uint16(s.To))
	}
	if p[3]&0x20 != 0 && len(p) > payload {
		payload += 1 + int(p[4])
	}
	if begins && p[3]&0x10 != 0 && payload < len(p) {
		shiftPES(p[payload:], s.Shift)
	}
	return size
}

// changePES changes a packet of a program stream. Another start code must follow it.
func (w *joinWindow) changePES(i int) (int64, error) {
	p := w.b[i:]
	if len(p) < 6 || !isPES(p) {
		return 0, nil
	}
	size := 6 + int64(binary.BigEndian.Uint16(p[4:]))
	next, err := w.peek(i, size, 3)
	isLast := w.at+int64(i)+size == w.Size()
	if err != nil || !isLast && string(next) != "\x00\x00\x01" {
		return 0, err
	}
	shiftPES(p, w.splice(0x100|int(p[3]), i).Shift)
	return size, nil
}

// changeTag changes a tag of FLV. Its length must follow it.
func (w *joinWindow) changeTag(i int) (int64, error) {
	p := w.b[i:]
	if len(p) < flvHeader || p[8] != 0 || p[9] != 0 || p[10] != 0 {
		return 0, nil
	}
	size := flvHeader + int64(p[1])<<16 + int64(p[2])<<8 + int64(p[3])
	length, err := w.peek(i, size, 4)
	if err != nil || len(length) < 4 || int64(binary.BigEndian.Uint32(length)) != size {
		return 0, err
	}
	if s := w.splice(int(p[0]&flvTypeMask), i); s.Shift != 0 {
		t := uint32(p[7])<<24 | uint32(p[4])<<16 | uint32(p[5])<<8 | uint32(p[6])
		t += uint32(s.Shift)
		p[4], p[5], p[6], p[7] = byte(t>>16), byte(t>>8), byte(t), byte(t>>24)
	}
	return size + 4, nil
}

// peek returns n bytes that follow a packet of a size at b[i], or fewer at the end of the source.
func (w *joinWindow) peek(i int, size int64, n int) ([]byte, error) {
	if end := int64(i) + size + int64(n); end <= int64(len(w.b)) {
		return w.b[end-int64(n) : end], nil
	}
	b := make([]byte, n)
	n, err := w.Input.ReadAt(w.ctx, b, w.at+int64(i)+size)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}
