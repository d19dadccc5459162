package media

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Eyevinn/mp4ff/mp4"
)

// copyClip is a source whose picture can be copied, if the options in between say nothing else. Its keyframes are 2.8 s apart.
func copyClip(t *testing.T, name, size, options string) string {
	t.Helper()
	return makeClip(t, name, "-f lavfi -i testsrc2=s="+size+":r=10 -f lavfi -i sine "+
		"-vf scale=out_color_matrix=bt709:out_range=tv,format=yuv420p -c:v libx264 -preset veryfast -crf 36 -g 28 -sc_threshold 0 "+
		"-colorspace bt709 -color_primaries bt709 -color_trc bt709 -c:a aac -t 10 "+options)
}

// planCopy probes a source, and plans its copy.
func planCopy(t *testing.T, src string) (info *Info, packets *Packets, reason string) {
	t.Helper()
	info, packets, err := chunkTools.ProbePackets(t.Context(), src)
	if err == nil {
		reason, err = chunkTools.PlanCopy(t.Context(), src, info, packets, Ladder(info))
	}
	if err != nil {
		t.Fatal(err)
	}
	return info, packets, reason
}

// packetHashes are the digests of the data of a video's packets, without messages.
func packetHashes(t *testing.T, file string) (hashes []string) {
	t.Helper()
	text := ffmpeg(t, "-i", file, "-map", "0:v", "-c", "copy", "-bsf:v", "h264_mp4toannexb,filter_units=remove_types=6-9",
		"-f", "framehash", "-")
	for line := range strings.Lines(string(text)) {
		if list := strings.Split(line, ","); !strings.HasPrefix(line, "#") {
			hashes = append(hashes, strings.TrimSpace(list[len(list)-1]))
		}
	}
	return hashes
}

// wantCopy requires that a rendition has the packets of the source, and all renditions segments at the planned times and one target
// duration.
func (r result) wantCopy(t *testing.T) {
	t.Helper()
	want, got := packetHashes(t, r.src), packetHashes(t, filepath.Join(r.dir, r.out.Video[0].Playlist))
	if len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("the copy has %d packets; want those of the source, %d", len(got), len(want))
	}
	for _, v := range slices.Concat(r.out.Video, r.out.Audio) {
		s, err := Tools{}.inspect(t.Context(), r.dir, v.Playlist)
		if err != nil {
			t.Fatal(err)
		}
		if s.target != r.info.Video.copyTarget() {
			t.Errorf("the target duration of %s is %d s; want %d", v.Name, s.target, r.info.Video.copyTarget())
		}
		if v.Group != "" {
			continue
		}
		var starts []int64
		for _, g := range s.segments {
			starts = append(starts, g.start)
		}
		isNear := func(a, b int64) bool { return max(a-b, b-a) <= copyRounding }
		if !slices.EqualFunc(starts, r.info.Video.Copy.Starts, isNear) {
			t.Errorf("%s has segments at %v; want %v", v.Name, starts, r.info.Video.Copy.Starts)
		}
	}
}

// copied makes the undivided transcode of a source with a copy.
func copied(t *testing.T, src string, o LadderOptions) (d divided) {
	t.Helper()
	info, packets, reason := planCopy(t, src)
	if reason != "" {
		t.Fatalf("copied nothing: %s", reason)
	}
	d = divided{result: result{src: src, info: info}, packets: packets, rungs: LadderWith(info, o)}
	d.result = d.whole(t)
	d.independently(t)
	d.wantCopy(t)
	return d
}

func TestTranscode_CopiesThePictureForTheRungOfItsSize(t *testing.T) {
	t.Parallel()
	d := copied(t, copyClip(t, "a.mp4", "480x360", "-t 12"), LadderOptions{})
	d.wantAccepted(t)
	whole := d.result
	d.divide(t, 6*time.Second)
	if len(d.plan.Chunks) != 2 {
		t.Fatalf("%d chunks, %s; want 2", len(d.plan.Chunks), d.plan.Reason)
	}
	d.transcodePieces(t)
	d.join(t)
	d.wantSame(t, whole)
	d.independently(t)
	d.wantCopy(t)
	d.wantPiecesAccepted(t)
	d.pieces[1].Output.DecodeErrors = 1
	_, err := chunkTools.JoinChunks(t.Context(), d.info, d.rungs, d.plan, d.pieces, t.TempDir())
	if !errors.Is(err, ErrNotDivisible) {
		t.Errorf("pieces of a damaged source: %v; want %v", err, ErrNotDivisible)
	}
}

func TestTranscode_EncodesADamagedSourceInsteadOfCopyingIt(t *testing.T) {
	t.Parallel()
	src := copyClip(t, "a.mp4", "320x240", "")
	content, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	var at, size int
	for line := range strings.Lines(string(tool(t, "ffprobe", "-v", "error", "-select_streams", "v", "-show_entries", "packet=pos,size",
		"-of", "csv=p=0", src))) {
		var n, pos int
		if _, err := fmt.Sscanf(line, "%d,%d", &n, &pos); err == nil && n > size {
			at, size = pos, n
		}
	}
	copy(content[at+size/4:at+3*size/4], bytes.Repeat([]byte("damaged"), size))
	if err := os.WriteFile(src, content, 0o600); err != nil {
		t.Fatal(err)
	}
	info, _, reason := planCopy(t, src)
	if reason != "" {
		t.Fatalf("copied nothing: %s", reason)
	}
	out, err := chunkTools.Transcode(t.Context(), src, info, LadderWith(info, LadderOptions{}), t.TempDir(), nil)
	if err != nil || !strings.Contains(strings.Join(out.Warnings, " "), "copied nothing: the source is damaged") {
		t.Errorf("%+v, %v; want a warning", out, err)
	}
}

func TestTranscode_CopiesWhatContainersStoreInOtherWays(t *testing.T) {
	t.Parallel()
	plain := copyClip(t, "a.mp4", "320x240", "-bf 3 -b_strategy 0")
	for name, args := range map[string]string{
		"late.mp4":   "-itsoffset 0.07 -i " + plain + " -i " + plain + " -map 0:v -map 1:a -c copy", // an empty edit
		"stamps.mkv": "-i " + plain + " -c copy",                                                    // without decoding times, in milliseconds
		"inband.mkv": "-i " + plain + " -c copy -bsf:v h264_mp4toannexb",                            // parameters at each keyframe
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := copied(t, makeClip(t, name, args), LadderOptions{})
			if len(d.out.Video) != 1 || d.out.Expected != 100 {
				t.Errorf("%d frames", d.out.Expected)
			}
		})
	}
}

func TestPlanCopy_SaysWhyNothingIsCopied(t *testing.T) {
	t.Parallel()
	plain := copyClip(t, "a.mp4", "320x240", "")
	info, packets, _ := planCopy(t, plain)
	info.Range, info.Video.Copy = &Range{}, nil
	if reason, err := chunkTools.PlanCopy(t.Context(), plain, info, packets, Ladder(info)); reason != "the video is a part of it" {
		t.Errorf("a part: %q, %v", reason, err)
	}
	for name, c := range map[string]struct{ size, options, source, want string }{
		"an open group of pictures": {size: "320x240", options: "-x264-params open-gop=1:bframes=3:b-adapt=0 -t 4", want: "closed group"},
		"distant keyframes":         {size: "320x240", options: "-g 120 -t 12", want: "keyframes are up to 12.0 s apart"},
		"another size":              {size: "330x248", options: "-t 1", want: "size and shape"},
		"10 bits":                   {size: "320x240", options: "-pix_fmt yuv420p10le -t 1", want: "profile"},
		"colours of old television": {size: "320x240", options: "-colorspace bt470bg -t 1", want: "colours"},
		"a high bitrate":            {size: "320x240", options: "-crf 2 -t 3", want: "bitrate"},
		"a high level":              {size: "320x240", options: "-level 4.1 -t 1", want: "level"},
		"another codec":             {size: "320x240", options: "-c:v mpeg4 -t 1", want: "H.264"},
		"an edit list that begins between keyframes": {source: "-ss 1.5 -i " + plain + " -c copy", want: "frames"},
		"no picture": {source: "-i " + plain + " -vn -c copy", want: "H.264"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := ""
			if c.source != "" {
				src = makeClip(t, "b.mp4", c.source)
			} else {
				src = copyClip(t, "b.mp4", c.size, c.options)
			}
			info, _, reason := planCopy(t, src)
			if !strings.Contains(reason, c.want) || info.Video != nil && info.Video.Copy != nil {
				t.Errorf("reason %q; want one about %q", reason, c.want)
			}
		})
	}
}

// The parameters of the second half are others than those of the header.
func TestPlanCopy_CopiesNoOtherParametersThanTheHeaderSays(t *testing.T) {
	t.Parallel()
	first, second := copyClip(t, "a.h264", "320x240", "-an"), copyClip(t, "b.h264", "320x240", "-an -refs 1 -bf 0 -profile:v main")
	a, err1 := os.ReadFile(first)
	b, err2 := os.ReadFile(second)
	joined := filepath.Join(t.TempDir(), "c.h264")
	if err := errors.Join(err1, err2, os.WriteFile(joined, slices.Concat(a, b), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, _, reason := planCopy(t, makeClip(t, "c.mp4", "-r 10 -i "+joined+" -c copy")); !strings.Contains(reason, "parameters") {
		t.Errorf("reason %q; want one about parameters", reason)
	}
	if _, _, reason := planCopy(t, twoHeaders(t, first, second)); !strings.Contains(reason, "parameters") {
		t.Errorf("two headers: reason %q; want one about parameters", reason)
	}
}

// twoHeaders makes an MP4 file of two, whose fragments have the header of their own file.
func twoHeaders(t *testing.T, first, second string) string {
	t.Helper()
	var files []*mp4.File
	for _, src := range []string{first, second} {
		file := makeClip(t, "fragments.mp4", "-r 10 -i "+src+" -c copy -movflags +empty_moov+frag_keyframe+default_base_moof")
		parsed, err := mp4.ReadMP4File(file)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, parsed)
	}
	var out bytes.Buffer
	files[0].Init.Moov.Trak.Mdia.Minf.Stbl.Stsd.AddChild(files[1].Init.Moov.Trak.Mdia.Minf.Stbl.Stsd.AvcX)
	err, end := files[0].Init.Encode(&out), uint64(0)
	for i, file := range files {
		for _, s := range file.Segments {
			for _, f := range s.Fragments {
				traf := f.Moof.Traf
				ticks := traf.Trun.AddSampleDefaultValues(traf.Tfhd, nil)
				traf.Tfhd.Flags, traf.Tfhd.SampleDescriptionIndex = traf.Tfhd.Flags|2, uint32(i+1)
				if i == 0 {
					end = traf.Tfdt.BaseMediaDecodeTime() + ticks
				} else {
					traf.Tfdt.SetBaseMediaDecodeTime(traf.Tfdt.BaseMediaDecodeTime() + end)
				}
				err = errors.Join(err, f.Encode(&out))
			}
		}
	}
	file := filepath.Join(t.TempDir(), "two.mp4")
	if err = errors.Join(err, os.WriteFile(file, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}
