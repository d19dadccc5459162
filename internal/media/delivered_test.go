package media

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/Eyevinn/mp4ff/mp4"
)

func ladderOfAMinute() (*Info, []Rung) {
	info := &Info{
		Duration: 60, Video: &Video{Width: 640, Height: 360, FPS: 25, Frames: 1500, Duration: 60},
		Audio: []Audio{{Index: 1, Duration: 60}, {Index: 2, Duration: 60}},
	}
	return info, Ladder(info)
}

func TestExpectedFile_AllowsOnlyNamesOfTheLadder(t *testing.T) {
	t.Parallel()
	info, rungs := ladderOfAMinute()
	for _, name := range []string{
		"360p/init.mp4", "240p/seg-00000.m4s", "360p/seg-00009.m4s", "audio/init.mp4", "audio-2/seg-00003.m4s",
	} {
		if !ExpectedFile(info, rungs, name) || MaxFileBytes(info, rungs, name) <= 0 {
			t.Errorf("%q is not expected", name)
		}
	}
	for _, name := range []string{
		"", ".", "..", "/", "init.mp4", "../360p/init.mp4", "/360p/init.mp4", "360p/../360p/init.mp4", "360p//init.mp4",
		"./360p/init.mp4", "360p/./init.mp4", "360p/init.mp4/", "360p/sub/init.mp4", `360p\init.mp4`, "360p/init.mp4\x00",
		"360p/init.mp4\n", "\t360p/init.mp4", "360P/init.mp4", "720p/init.mp4", "audio-3/init.mp4", "audio-1/init.mp4",
		"360p/index.m3u8", "360p/seg-00000.m4s.tmp", "360p/.seg-00000.m4s", "360p/seg-0.m4s", "360p/seg-000000.m4s",
		"360p/seg-+0001.m4s", "360p/seg--0001.m4s", "360p/seg-00100.m4s", "360p/seg-99999.m4s", "360p/seg-0x001.m4s",
		"360p/seg-99999999999999999999.m4s", "360p/seg-00001.M4S", "360p/seg-٠٠٠٠١.m4s", "CON/init.mp4", "360p/NUL",
		"storyboard/storyboard.vtt", "storyboard/storyboard-001.jpg", "master.m3u8", "decoded.tap",
		strings.Repeat("a/", 10000), strings.Repeat("a", 1<<20),
	} {
		if ExpectedFile(info, rungs, name) || MaxFileBytes(info, rungs, name) != 0 {
			t.Errorf("%.40q is expected", name)
		}
	}
}

func TestMaxTotalBytes_BoundsTheNamesAndTheBytes(t *testing.T) {
	t.Parallel()
	info, rungs := ladderOfAMinute()
	// 1.2 Mbit/s of video and two streams of audio, doubled, and a megabyte for each rendition.
	if got := MaxTotalBytes(info, rungs); got < 20<<20 || got > 40<<20 {
		t.Errorf("the limit is %d bytes", got)
	}
	allowed := 0
	for n := range 100_000 {
		if ExpectedFile(info, rungs, fmt.Sprintf("360p/seg-%05d.m4s", n)) {
			allowed++
		}
	}
	if allowed < 10 || allowed > 13 {
		t.Errorf("%d segments are allowed for a minute", allowed)
	}
	info.Duration = maxDuration
	if got := MaxTotalBytes(info, rungs); got <= 0 || got > 1<<40 {
		t.Errorf("the limit of a week is %d bytes", got)
	}
}

func TestReadDelivery_RefusesWhatIsNotAPlainExpectedFile(t *testing.T) {
	t.Parallel()
	info, rungs := ladderOfAMinute()
	tests := map[string]func(dir string) error{
		"a link to a file": func(dir string) error {
			return os.Symlink("/etc/passwd", filepath.Join(dir, "360p/seg-00001.m4s"))
		},
		"a link to a directory": func(dir string) error { return os.Symlink("360p", filepath.Join(dir, "240p")) },
		"a link that is broken": func(dir string) error {
			return os.Symlink("nowhere", filepath.Join(dir, "360p/seg-00001.m4s"))
		},
		"a FIFO": func(dir string) error {
			return syscall.Mkfifo(filepath.Join(dir, "360p/seg-00001.m4s"), 0o600)
		},
		"a device": func(dir string) error {
			err := syscall.Mknod(filepath.Join(dir, "360p/seg-00001.m4s"), syscall.S_IFCHR|0o600, 1<<8|3)
			if errors.Is(err, syscall.EPERM) {
				return os.Symlink("/dev/null", filepath.Join(dir, "360p/seg-00001.m4s"))
			}
			return err
		},
		"a directory for a file": func(dir string) error { return os.Mkdir(filepath.Join(dir, "360p/seg-00001.m4s"), 0o755) },
		"an extra rendition":     func(dir string) error { return os.Mkdir(filepath.Join(dir, "720p"), 0o755) },
		"an extra file": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "360p/x.html"), []byte("x"), 0o600)
		},
		"an empty file": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "360p/seg-00001.m4s"), nil, 0o600)
		},
		"a file too large": func(dir string) error { return os.Truncate(filepath.Join(dir, "360p/seg-00000.m4s"), 1<<30) },
		"a missing segment": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "360p/seg-00002.m4s"), []byte("x"), 0o600)
		},
		"a missing header": func(dir string) error { return os.Remove(filepath.Join(dir, "360p/init.mp4")) },
		"no segments":      func(dir string) error { return os.Remove(filepath.Join(dir, "360p/seg-00000.m4s")) },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "360p"), 0o755),
				os.WriteFile(filepath.Join(dir, "360p/init.mp4"), []byte("x"), 0o600),
				os.WriteFile(filepath.Join(dir, "360p/seg-00000.m4s"), []byte("x"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if got, err := readDelivery(dir, expectAll(info, rungs)); err != nil || len(got["360p"]) != 1 {
				t.Fatalf("the sound delivery gives %v, %v", got, err)
			}
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			_, err := readDelivery(dir, expectAll(info, rungs))
			if refused := (*RefusedError)(nil); !errors.As(err, &refused) {
				t.Errorf("error %v; want a refusal", err)
			}
		})
	}
}

func TestReadDelivery_DoesNotBlameTheWorkerForTheHost(t *testing.T) {
	t.Parallel()
	info, rungs := ladderOfAMinute()
	_, err := readDelivery(filepath.Join(t.TempDir(), "gone"), expectAll(info, rungs))
	if refused := (*RefusedError)(nil); err == nil || errors.As(err, &refused) {
		t.Errorf("error %v; want one about the host", err)
	}
}

func FuzzExpectedFile(f *testing.F) {
	f.Add("360p/seg-00001.m4s")
	f.Add("audio-2/init.mp4")
	f.Add("../../etc/passwd")
	f.Fuzz(func(t *testing.T, name string) {
		info, rungs := ladderOfAMinute()
		if ExpectedFile(info, rungs, name) && (!filepath.IsLocal(name) || filepath.Clean(name) != name ||
			strings.Count(name, "/") != 1 || len(name) > 30) {
			t.Errorf("%q is expected", name)
		}
	})
}

func FuzzBoxTree(f *testing.F) {
	f.Add(newBox("moof", string(newBox("mfhd", "12345678"))+string(newBox("traf", ""))), true)
	f.Add([]byte("\x00\x00\x00\x01mdat\x7f\xff\xff\xff\xff\xff\xff\xff"), true)
	f.Add(newBox("moov", string(newBox("trak", string(newBox("mdia", "\x00\x00"))))), false)
	f.Fuzz(func(t *testing.T, b []byte, isSegment bool) {
		tree := initBoxes
		if isSegment {
			tree = segmentBoxes
		}
		if tree.check(bytes.NewReader(b), int64(len(b))) != nil {
			return
		}
		// The parser must be safe with everything that the walk accepts.
		file := filepath.Join(t.TempDir(), "x.mp4")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var s renditionFiles
		_ = s.readInit(file)
		if g, err := readSegment(file); err == nil && (g.frames < 0 || g.frames > math.MaxInt32) {
			t.Errorf("%d frames", g.frames)
		}
	})
}

func FuzzDeliveredInit(f *testing.F) {
	sps, err1 := hex.DecodeString("6764001eacd940a02ff9610000030001000003003c8f162d96")
	pps, err2 := hex.DecodeString("68ebe3cb22c0")
	video, audio := mp4.CreateEmptyInit(), mp4.CreateEmptyInit()
	video.AddEmptyTrack(videoTimescale, "video", "und")
	audio.AddEmptyTrack(sampleRate, "audio", "und")
	if err := errors.Join(err1, err2, video.Moov.Trak.SetAVCDescriptor("avc1", [][]byte{sps}, [][]byte{pps}, true),
		audio.Moov.Trak.SetAACDescriptor(2, sampleRate)); err != nil {
		f.Fatal(err)
	}
	for _, init := range []*mp4.InitSegment{video, audio} {
		var b bytes.Buffer
		if err := init.Encode(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes(), init == audio)
	}
	f.Fuzz(func(t *testing.T, b []byte, isAudio bool) {
		file := filepath.Join(t.TempDir(), initName)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		j := renditionJob{rung: Rung{Name: "360p", Width: 640, Height: 360}}
		if isAudio {
			j = renditionJob{rung: Rung{Name: "audio"}, audio: &Audio{}}
		}
		if writeInit(file, j, &Info{Video: &Video{FPS: 25}}, timing{}, 0) != nil {
			return
		}
		var s renditionFiles
		if err := errors.Join(s.readInit(file), checkPublishedInit(file)); err != nil {
			t.Errorf("the written header is wrong: %v", err)
		}
		if isVideo := s.width == 640 && s.height == 360; isVideo == isAudio {
			t.Errorf("an accepted header has %dx%d pixels and %d channels", s.width, s.height, s.channels)
		}
	})
}

// A cycle of 2^32 reference frames would take 32 GiB.
func TestParseSPS_AllocatesNothingForDeclaredLists(t *testing.T) {
	t.Parallel()
	// Baseline, parameters 0, frame numbers 0, picture order type 1, then zeros, and 32 one bits.
	forged := append([]byte{0x67, 66, 0, 30, 0b1_1_010_0_1_1, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}, make([]byte, 32)...)
	if p, err := parseSPS(forged); err == nil {
		t.Errorf("forged parameters give %+v", p)
	}
}

func FuzzSPS(f *testing.F) {
	for _, text := range []string{"6764001eacd940a02ff9610000030001000003003c8f162d96", "6742c01ed900a02ff961", "67"} {
		nalu, err := hex.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(nalu)
	}
	f.Fuzz(func(t *testing.T, nalu []byte) {
		p, err := parseSPS(nalu)
		if err == nil && (p.width > maxEncodedSide+16 || p.height > maxEncodedSide+16) {
			t.Errorf("%+v", p)
		}
	})
}
