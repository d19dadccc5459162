package media

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Eyevinn/mp4ff/mp4"
)

// editInit changes the initialization segment of a chunk.
func editInit(t *testing.T, file string, change func(*mp4.MoovBox)) {
	t.Helper()
	err := rewriteMP4(file, func(parsed *mp4.File) (encoder, error) {
		change(parsed.Init.Moov)
		return parsed.Init, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func visualEntry(moov *mp4.MoovBox) *mp4.VisualSampleEntryBox {
	return moov.Trak.Mdia.Minf.Stbl.Stsd.AvcX
}

// ffmpeg 7.1 writes its name, a bitrate and metadata that ffmpeg 5.1 does not write; the parameters of x264 are the same.
func TestJoinChunks_JoinsChunksOfDifferentVersionsOfFFmpeg(t *testing.T) {
	t.Parallel()
	d := threeChunks(t)
	want := d
	want.join(t)
	second := d.pieces[2].Dir
	init := filepath.Join(second, d.rungs[0].Name, initName)
	editInit(t, init, func(moov *mp4.MoovBox) {
		visualEntry(moov).CompressorName = "Lavc61.19.101 libx264"
		visualEntry(moov).AddChild(&mp4.BtrtBox{BufferSizeDB: 1, MaxBitrate: 2, AvgBitrate: 3})
		moov.Children = moov.Children[:3] // no metadata
	})
	d.join(t)
	for _, name := range []string{initName, playlistName, "seg-00001.m4s"} {
		name = filepath.Join(d.rungs[0].Name, name)
		a, err1 := os.ReadFile(filepath.Join(d.dir, name))
		b, err2 := os.ReadFile(filepath.Join(want.dir, name))
		if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %v %v", name, err1, err2)
		}
	}
}

func TestJoinChunks_RefusesChunksThatNeedAnotherHeader(t *testing.T) {
	t.Parallel()
	d := threeChunks(t)
	init := filepath.Join(d.pieces[2].Dir, d.rungs[0].Name, initName)
	original, err := os.ReadFile(init)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*mp4.MoovBox){
		"other picture parameters": func(m *mp4.MoovBox) { visualEntry(m).AvcC.PPSnalus[0][1] ^= 1 },
		"another level":            func(m *mp4.MoovBox) { visualEntry(m).AvcC.AVCLevelIndication++ },
		"other pixels":             func(m *mp4.MoovBox) { visualEntry(m).Pasp.HSpacing++ },
		"another size":             func(m *mp4.MoovBox) { visualEntry(m).Width += 2 },
		"another clock":            func(m *mp4.MoovBox) { m.Trak.Mdia.Mdhd.Timescale++ },
		"another edit list":        func(m *mp4.MoovBox) { m.Trak.Edts.Elst[0].Entries[0].MediaTime++ },
		"another track":            func(m *mp4.MoovBox) { m.Trak.Tkhd.TrackID++ },
		"a disabled track":         func(m *mp4.MoovBox) { m.Trak.Tkhd.Flags = 0 },
	} {
		if err := os.WriteFile(init, original, 0o644); err != nil {
			t.Fatal(err)
		}
		editInit(t, init, change)
		_, err := chunkTools.JoinChunks(t.Context(), d.info, d.rungs, d.plan, d.pieces, t.TempDir())
		wrong, ok := errors.AsType[*ChunkError](err)
		if !ok || wrong.Chunk != 1 || !strings.Contains(err.Error(), "initialization segment") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
