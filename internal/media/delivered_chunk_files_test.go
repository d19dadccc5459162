package media

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/Eyevinn/mp4ff/mp4"
)

// editSegment changes the fragment of a segment.
func editSegment(t *testing.T, file string, change func(*mp4.Fragment)) {
	t.Helper()
	err := rewriteMP4(file, func(parsed *mp4.File) (encoder, error) {
		fragment := parsed.Segments[0].Fragments[0]
		fragment.Moof.Traf.Trun.AddSampleDefaultValues(fragment.Moof.Traf.Tfhd, nil)
		change(fragment)
		fragment.SetTrunDataOffsets()
		return parsed.Segments[0], nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// moveTo gives a segment the decoding time and number of another one, as the plan has it.
func moveTo(dts uint64, number uint32) func(*mp4.Fragment) {
	return func(f *mp4.Fragment) {
		f.Moof.Traf.Tfdt.SetBaseMediaDecodeTime(dts)
		f.Moof.Mfhd.SequenceNumber = number
	}
}

func TestCheckDeliveredChunk_RefusesForgedFiles(t *testing.T) {
	t.Parallel()
	d := movingChunks(t)
	chunks := []ChunkPiece{d.transcodeChunk(t, 0), d.transcodeChunk(t, 1), d.transcodeChunk(t, 2)}
	const segment = "seg-00001.m4s"
	top := d.rungs[0].Name
	samples := func(change func([]mp4.FullSample) []mp4.FullSample) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			editSegment(t, filepath.Join(dir, top, segment), func(f *mp4.Fragment) {
				list, err := f.GetFullSamples(nil)
				if err != nil {
					t.Fatal(err)
				}
				list = change(list)
				f.Moof.Traf.Trun.Samples, f.Mdat.Data = nil, nil
				f.Moof.Traf.Trun.Flags |= mp4.TrunSampleDurationPresentFlag | mp4.TrunSampleFlagsPresentFlag |
					mp4.TrunSampleSizePresentFlag | mp4.TrunSampleCompositionTimeOffsetPresentFlag
				f.Moof.Traf.Trun.Flags &^= mp4.TrunFirstSampleFlagsPresentFlag
				for _, s := range list {
					f.Moof.Traf.Trun.AddSample(s.Sample)
					f.Mdat.Data = append(f.Mdat.Data, s.Data...)
				}
			})
		}
	}
	init := func(change func(*mp4.MoovBox)) func(*testing.T, string) {
		return func(t *testing.T, dir string) { editInit(t, filepath.Join(dir, top, initName), change) }
	}
	fragment := func(change func(*mp4.Fragment)) func(*testing.T, string) {
		return func(t *testing.T, dir string) { editSegment(t, filepath.Join(dir, top, segment), change) }
	}
	bytesOf := func(change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			file := filepath.Join(dir, top, segment)
			text, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, change(text), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	rename := func(t *testing.T, dir string, from int, retime bool) {
		for _, r := range d.rungs[:len(d.rungs)-1] {
			own := filepath.Join(dir, r.Name, segment)
			dts := readFirstDTS(t, own)
			copyFile(t, filepath.Join(chunks[from].Dir, r.Name, segmentName(from)), own)
			if retime {
				editSegment(t, own, moveTo(dts, 2))
			}
		}
	}
	for _, f := range []struct {
		name, word string
		spoil      func(*testing.T, string)
	}{
		{"nothing", "missing", func(t *testing.T, dir string) { removeAll(t, filepath.Join(dir, top)) }},
		{"another chunk's segments with the right names", "of the plan", func(t *testing.T, dir string) {
			rename(t, dir, 2, false)
		}},
		{"another chunk's segments with the right times", "of the source", func(t *testing.T, dir string) {
			rename(t, dir, 0, true)
		}},
		{"another chunk's files", "does not have", func(t *testing.T, dir string) {
			removeAll(t, filepath.Join(dir, top))
			if err := os.CopyFS(filepath.Join(dir, top), os.DirFS(filepath.Join(chunks[2].Dir, top))); err != nil {
				t.Fatal(err)
			}
		}},
		{"an extra segment", "does not have", func(t *testing.T, dir string) {
			copyFile(t, filepath.Join(dir, top, segment), filepath.Join(dir, top, "seg-00002.m4s"))
		}},
		{"an extra file", "does not have", func(t *testing.T, dir string) {
			copyFile(t, filepath.Join(dir, top, segment), filepath.Join(dir, top, "x.html"))
		}},
		{"a playlist of the whole", "does not have", func(t *testing.T, dir string) {
			copyFile(t, filepath.Join(dir, top, segment), filepath.Join(dir, MasterName))
		}},
		{"a rendition of another size", "pixels", func(t *testing.T, dir string) {
			removeAll(t, filepath.Join(dir, top))
			if err := os.Rename(filepath.Join(dir, d.rungs[1].Name), filepath.Join(dir, top)); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(filepath.Join(dir, d.rungs[1].Name), os.DirFS(filepath.Join(dir, top))); err != nil {
				t.Fatal(err)
			}
		}},
		{"a higher level", "level is 52", init(func(m *mp4.MoovBox) {
			visualEntry(m).AvcC.AVCLevelIndication, visualEntry(m).AvcC.SPSnalus[0][3] = 52, 52
		})},
		{"another profile", "profile", init(func(m *mp4.MoovBox) {
			visualEntry(m).AvcC.AVCProfileIndication, visualEntry(m).AvcC.SPSnalus[0][1] = 110, 110
		})},
		{"other picture parameters", "of the plan", init(func(m *mp4.MoovBox) { visualEntry(m).AvcC.PPSnalus[0][1] ^= 1 })},
		{"a number of reordered frames that the encoder has not", "", init(func(m *mp4.MoovBox) {
			sps := visualEntry(m).AvcC.SPSnalus[0]
			sps[len(sps)-2] ^= 8
		})},
		{"oblong pixels", "not square", init(func(m *mp4.MoovBox) { visualEntry(m).Pasp.HSpacing = 10 })},
		{"another clock", "ticks a second", init(func(m *mp4.MoovBox) { m.Trak.Mdia.Mdhd.Timescale = 60000 })},
		{"a truncated segment", "fit", bytesOf(func(b []byte) []byte { return b[:len(b)/2] })},
		{"a lost block", "damaged NAL unit", bytesOf(func(b []byte) []byte {
			clear(b[len(b)-2000 : len(b)-1488])
			return b
		})},
		{"an extra box", "needs", bytesOf(func(b []byte) []byte { return append(b, newBox("uuid", "<script>")...) })},
		{"media data that is longer than its index", "index", bytesOf(func(b []byte) []byte {
			i := bytes.Index(b, []byte("mdat")) - 4
			return append(b[:i:i], newBox("mdat", string(b[i+8:])+"\x00")...)
		})},
		{"a frame less", "149 frames", samples(func(s []mp4.FullSample) []mp4.FullSample { return s[:len(s)-1] })},
		{"a frame twice", "151 frames", samples(func(s []mp4.FullSample) []mp4.FullSample { return append(s, s[len(s)-1]) })},
		{"a frame twice instead of another", "of the plan", samples(func(s []mp4.FullSample) []mp4.FullSample {
			s[20] = s[19]
			return s
		})},
		{"a frame without duration", "decoded at", samples(func(s []mp4.FullSample) []mp4.FullSample {
			s[10].Dur, s[11].Dur = 0, s[10].Dur+s[11].Dur
			s[11].CompositionTimeOffset += int32(s[11].Dur / 2)
			return s
		})},
		{"a keyframe that is none", "keyframes", samples(func(s []mp4.FullSample) []mp4.FullSample {
			s[0].Flags |= mp4.NonSyncSampleFlags
			return s
		})},
		{"an extra keyframe", "keyframes", samples(func(s []mp4.FullSample) []mp4.FullSample {
			s[50].Flags &^= mp4.NonSyncSampleFlags
			return s
		})},
		{"a last frame that lasts longer", "ends at", samples(func(s []mp4.FullSample) []mp4.FullSample {
			s[len(s)-1].Dur += 10
			return s
		})},
		{"frames one frame later", "of the plan", fragment(func(f *mp4.Fragment) {
			f.Moof.Traf.Tfdt.SetBaseMediaDecodeTime(f.Moof.Traf.Tfdt.BaseMediaDecodeTime() + 4800)
		})},
		{"a clock that begins near its end", "", fragment(func(f *mp4.Fragment) {
			f.Moof.Traf.Tfdt.SetBaseMediaDecodeTime(1<<63 - 100)
		})},
		{"no frames", "", samples(func([]mp4.FullSample) []mp4.FullSample { return nil })},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			dir := copyDir(t, chunks[1].Dir)
			f.spoil(t, dir)
			_, err := d.check(t, 1, dir)
			wantRefused(t, err, f.word)
		})
	}
}

func readFirstDTS(t *testing.T, file string) uint64 {
	t.Helper()
	var dts uint64
	editSegment(t, file, func(f *mp4.Fragment) { dts = f.Moof.Traf.Tfdt.BaseMediaDecodeTime() })
	return dts
}

// The last segment may be too short for players. Then it is part of the one before.
func TestCheckDeliveredChunk_WantsAShortTailInTheSegmentBefore(t *testing.T) {
	t.Parallel()
	d := probed(t, makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=96x64:r=25:d=18.2"+closedGroups))
	if d.divide(t, 6*1e9); len(d.plan.Chunks) != 3 || d.plan.Chunks[2].Segments != 2 {
		t.Fatalf("chunks %+v, %s", d.plan.Chunks, d.plan.Reason)
	}
	d.transcodePieces(t)
	d.join(t)
	d.wantPiecesAccepted(t)

	i := slices.IndexFunc(d.pieces, func(p ChunkPiece) bool { return p.Output.Chunk == 2 })
	folder := filepath.Join(copyDir(t, d.pieces[i].Dir), d.rungs[0].Name)
	split := filepath.Join(folder, "seg-00003.m4s")
	for name, keep := range map[string]int{"seg-00002.m4s": 0, "seg-00003.m4s": 1} {
		copyFile(t, filepath.Join(d.pieces[i].Dir, d.rungs[0].Name, "seg-00002.m4s"), filepath.Join(folder, name))
		if err := rewriteMP4(filepath.Join(folder, name), func(parsed *mp4.File) (encoder, error) {
			parsed.Segments[0].Fragments = parsed.Segments[0].Fragments[keep : keep+1]
			return parsed.Segments[0], nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := d.check(t, 2, filepath.Dir(folder))
	wantRefused(t, err, "2 segments instead of 1")
	removeAll(t, split)
	_, err = d.check(t, 2, filepath.Dir(folder))
	wantRefused(t, err, "frames")
}
