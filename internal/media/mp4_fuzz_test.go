package media

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/Eyevinn/mp4ff/mp4"
)

var soundJob = renditionJob{rung: Rung{Name: "audio"}, audio: &Audio{}}

// soundInit is the initialization segment of sound.
func soundInit(f *testing.F) *bytes.Buffer {
	init := mp4.CreateEmptyInit()
	init.AddEmptyTrack(sampleRate, "audio", "und")
	var whole bytes.Buffer
	if err := errors.Join(init.Moov.Trak.SetAACDescriptor(2, sampleRate), init.Encode(&whole)); err != nil {
		f.Fatal(err)
	}
	return &whole
}

// An initialization segment may be cut off on a full disk.
func FuzzTruncatedInit(f *testing.F) {
	whole := soundInit(f)
	for cut := 0; cut <= whole.Len(); cut += 50 {
		f.Add(cut, int64(1024))
	}
	f.Add(whole.Len(), int64(1024))
	f.Add(whole.Len(), int64(-1))
	file := filepath.Join(f.TempDir(), "init.mp4")
	f.Fuzz(func(t *testing.T, cut int, skip int64) {
		if cut < 0 || cut > whole.Len() || skip < 0 || skip > math.MaxInt32 {
			return
		}
		if err := os.WriteFile(file, whole.Bytes()[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		err := writeInit(file, soundJob, &Info{}, timing{}, skip)
		if (err == nil) != (cut == whole.Len()) {
			t.Fatalf("of %d bytes, %d: %v", whole.Len(), cut, err)
		}
		after, readErr := os.ReadFile(file)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if err != nil {
			if !bytes.Equal(after, whole.Bytes()[:cut]) {
				t.Errorf("a rejected initialization segment became %q", after)
			}
			return
		}
		repaired, err := mp4.DecodeFile(bytes.NewReader(after))
		if err != nil {
			t.Fatal(err)
		}
		if entries := repaired.Init.Moov.Trak.Edts.Elst[0].Entries; len(entries) != 1 || entries[0].MediaTime != skip {
			t.Errorf("the edits are %+v, want one that skips %d", entries, skip)
		}
	})
}

func FuzzStderr(f *testing.F) {
	f.Add([]byte("[h264 @ 0x55d0c8] [error] Invalid NAL unit size (0 > 12).\r\n[fatal] No space left on device\n"),
		"/srv/a.mp4")
	f.Add([]byte("file:/srv/a.mp4: \xff\x00\x1b[31m"), "/srv/a.mp4")
	f.Add([]byte(strings.Repeat("é", 5000)+"\n"), "")
	f.Fuzz(func(t *testing.T, b []byte, source string) {
		s := &stderrTail{source: source}
		if n, err := s.Write(b); n != len(b) || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
		got := s.report()
		if !utf8.ValidString(got.tail) || strings.ContainsAny(got.tail, "\x00\x1b\r\x7f") ||
			len(got.tail) > 2*tailBytes || got.errors < 0 {
			t.Errorf("%q became %q", b, got.tail)
		}
	})
}

func FuzzCapabilityLists(f *testing.F) {
	f.Add("ffmpeg version 5.1.6\nlibavcodec     59. 37.100 / 59. 37.100\n", "aac")
	f.Add("libavcodec 99999999999999999999.1.1/", "")
	f.Add(" ... zscale            V->V       Resize", "zscale")
	f.Add(" DEAIL. aac  AAC (decoders: aac aac_fixed )", "aac")
	f.Fuzz(func(t *testing.T, text, name string) {
		isCodecVersion(text, 59, 37)
		if hasFilter(text, name) && !strings.Contains(text, name) {
			t.Errorf("%q lists %q", text, name)
		}
		for _, decoder := range parseCoders(name, text, "decoders") {
			if decoder != name && !strings.Contains(text, decoder) {
				t.Errorf("%q has the decoder %q", text, decoder)
			}
		}
	})
}

func FuzzLanguage(f *testing.F) {
	f.Add("eng")
	f.Add("EN-us")
	f.Add("\"\n#EXT")
	f.Fuzz(func(t *testing.T, tag string) {
		for _, got := range []string{languageTag(tag), bcp47(languageTag(tag))} {
			if strings.ContainsFunc(got, func(r rune) bool {
				return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
			}) {
				t.Errorf("%q became %q", tag, got)
			}
		}
	})
}

// An initialization segment may have lost blocks on a failing disk.
func FuzzInitWithZeros(f *testing.F) {
	whole := soundInit(f)
	for from := 0; from < whole.Len(); from += 4 {
		f.Add(from, 4)
		f.Add(from, whole.Len())
	}
	f.Fuzz(func(t *testing.T, from, length int) {
		if from < 0 || from > whole.Len() || length < 0 {
			return
		}
		holed := bytes.Clone(whole.Bytes())
		clear(holed[from:min(len(holed), from+min(length, len(holed)))])
		file := filepath.Join(t.TempDir(), "init.mp4")
		if err := os.WriteFile(file, holed, 0o600); err != nil {
			t.Fatal(err)
		}
		var s renditionFiles
		_ = s.readInit(file)
		_, _ = readSegment(file)
		if err := writeInit(file, soundJob, &Info{}, timing{}, 1024); err == nil && length >= 4 && from == 0 {
			t.Error("an initialization segment without a start was fixed")
		}
	})
}
