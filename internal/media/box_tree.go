package media

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
)

// boxTree lists, for each box that contains others, which ones it may contain. ""
// is the file. All other boxes are leaves.
type boxTree map[string][]string

// initBoxes are the boxes of an initialization segment, segmentBoxes those of a
// segment, as ffmpeg writes them. Boxes that could name other files, carry
// scripts, or change the decoder within the track are not among them.
var (
	initBoxes = boxTree{
		"":     {"ftyp", "moov"},
		"moov": {"mvhd", "trak", "mvex", "udta"},
		"trak": {"tkhd", "edts", "mdia"},
		"edts": {"elst"},
		"mdia": {"mdhd", "hdlr", "minf"},
		"minf": {"vmhd", "smhd", "dinf", "stbl"},
		"dinf": {"dref"},
		"stbl": {"stsd", "stts", "stsc", "stsz", "stco", "sdtp"},
		"stsd": {"avc1", "hvc1", "av01", "mp4a"},
		"avc1": {"avcC", "colr", "pasp", "btrt", "fiel"},
		"hvc1": {"hvcC", "colr", "mdcv", "clli", "pasp", "btrt", "fiel"},
		"av01": {"av1C", "colr", "mdcv", "clli", "pasp", "btrt", "fiel"},
		"mp4a": {"esds", "btrt"},
		"mvex": {"trex"},
	}
	segmentBoxes = boxTree{
		"":     {"styp", "free", "moof", "mdat"},
		"moof": {"mfhd", "traf"},
		"traf": {"tfhd", "tfdt", "trun"},
	}
)

// fieldBytes is how many bytes of fields a box has between its header and the
// boxes it contains.
var fieldBytes = map[string]int64{"stsd": 8, "avc1": 78, "hvc1": 78, "av01": 78, "mp4a": 28}

// tableBytes are the sizes of boxes whose declared number of entries the parser
// trusts when it allocates. A fragmented file has no entries there. ffmpeg writes one edit or two, in 32 or 64 bits.
var tableBytes = map[string][]int64{"stts": {16}, "stsc": {16}, "stsz": {20}, "stco": {16}, "elst": {28, 36, 40, 56}}

const (
	// maxBoxesInFile limits the boxes of a file, of which a merged segment has
	// some dozens; maxIndexBytes limits every box but the media data.
	maxBoxesInFile = 1 << 10
	maxIndexBytes  = 256 << 10
)

// checkTree walks the boxes of a file before a parser reads it.
func checkTree(file string, tree boxTree) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return tree.check(f, st.Size())
}

// check walks the boxes of a file. It allocates nothing that depends on the
// file, so it comes before a parser that does.
func (b boxTree) check(f io.ReaderAt, size int64) error {
	left := maxBoxesInFile
	return b.checkRange(f, "", 0, size, &left)
}

func (b boxTree) checkRange(f io.ReaderAt, parent string, offset, end int64, left *int) error {
	for offset < end {
		kind, length, err := readBox(f, offset)
		*left--
		switch {
		case err != nil || length < 8 || length > end-offset:
			return fmt.Errorf("its boxes do not fit into the file")
		case !slices.Contains(b[parent], kind):
			return fmt.Errorf("it has a box %q that no %s needs", kind, describeParent(parent))
		case kind != "mdat" && length > maxIndexBytes:
			return fmt.Errorf("its box %s is too large", kind)
		case *left < 0:
			return fmt.Errorf("it has more than %d boxes", maxBoxesInFile)
		}
		if err := checkTable(f, kind, offset, length); err != nil {
			return err
		}
		if _, isParent := b[kind]; isParent {
			if err := b.checkRange(f, kind, min(offset+8+fieldBytes[kind], offset+length), offset+length, left); err != nil {
				return err
			}
		}
		offset += length
	}
	return nil
}

// checkTable checks that a table has as many entries as it declares.
func checkTable(f io.ReaderAt, kind string, offset, length int64) error {
	sizes, isTable := tableBytes[kind]
	if !isTable {
		return nil
	}
	want := uint32(0)
	if kind == "elst" {
		if want = 1; length > 36 {
			want = 2
		}
	}
	var count [4]byte
	at := offset + 12
	if kind == "stsz" {
		at += 4 // after the size of all samples
	}
	if _, err := f.ReadAt(count[:], at); err != nil || !slices.Contains(sizes, length) ||
		binary.BigEndian.Uint32(count[:]) != want {
		return fmt.Errorf("its box %s has entries that a fragmented file does not have", kind)
	}
	return nil
}

func describeParent(parent string) string {
	if parent == "" {
		return "such file"
	}
	return parent
}
