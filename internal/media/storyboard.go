package media

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const (
	// tileShort is the short side of a storyboard's pictures, in pixels.
	tileShort = 90
	// tileLongest keeps odd shapes from filling whole sheets.
	tileLongest = 320
	// sheetSide is the number of columns and of rows of a full sheet.
	sheetSide = 10
	// The distance of pictures is a hundredth of the duration, but within
	// these bounds, in seconds.
	tileNearest = 1.0
	tileFarest  = 10.0

	// StoryboardFolder is where Transcode writes a storyboard, in its folder.
	StoryboardFolder = "storyboard"

	storyboardVTT = "storyboard.vtt"
	sheetPattern  = "storyboard-%03d.jpg"
)

// Storyboard writes small pictures of the whole source into dir, many to a
// sheet, and a WebVTT file that says which part of which sheet shows which
// time. There is one every hundredth of the duration, but not more than one a
// second and not less than one every ten. Where keyframes are dense enough,
// only they are decoded. A source without video gives [ErrNoPicture].
//
// [Tools.Transcode] makes the same without reading the source once more.
func (t Tools) Storyboard(ctx context.Context, src string, info *Info, dir string) (*Storyboard, error) {
	ctx, cancel := t.within(ctx, info.Duration)
	defer cancel()
	board, err := t.counting().storyboard(ctx, src, info, dir)
	if err != nil {
		return nil, fmt.Errorf("make storyboard: %w", err)
	}
	return board, nil
}

func (t Tools) storyboard(ctx context.Context, src string, info *Info, dir string) (*Storyboard, error) {
	if info.Video == nil {
		return nil, ErrNoPicture
	}
	abs, url, err := sourceURL(src)
	if err != nil {
		return nil, err
	}
	c, err := t.caps(ctx, false, false)
	if err != nil {
		return nil, err
	}
	b := layOut(info)
	args := []string{"-nostdin", "-hide_banner", "-y", "-loglevel", "repeat+level+error", "-progress", "pipe:1"}
	args = append(args, t.threads()...)
	options := append([]string{"-noautorotate"}, alphaDecoder(info.Video, c)...)
	if keyframesWillDo(info.Video, b.Interval) {
		options = append(options, "-skip_frame", "nokey")
	}
	args = append(args, input(url, append(asProbed(info, c.decodable), options...)...)...)
	// The first output is for the watchdog: a sheet takes a hundred pictures
	// before anything of it can be seen.
	args = append(args, "-filter_complex", fmt.Sprintf("[0:%d]split=2[seen][all];[all]%s", info.Video.Index, b.chain(info, c)),
		"-map", "[seen]", "-c:v", "wrapped_avframe", "-f", "null", "-")
	args = append(args, sheetArgs(".")...)
	reader := newProgressReader(info.Duration, nil, time.Now)
	out, err := t.run(ctx, child{tool: "ffmpeg", what: "storyboard", args: args, dir: dir, source: abs, stdout: reader})
	if err := sourceTrouble(out, err); err != nil {
		return nil, err
	}
	return b, b.finish(dir, info)
}

func sheetArgs(folder string) []string {
	return []string{"-map", "[sheets]", "-q:v", "5", "-f", "image2", "-start_number", "0", path.Join(folder, sheetPattern)}
}

// finish finds the sheets and writes what says where in them which time is.
func (b *Storyboard) finish(dir string, info *Info) error {
	if err := os.Remove(filepath.Join(dir, fmt.Sprintf(sheetPattern, 0))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := b.find(dir); err != nil {
		return err
	}
	b.VTT = storyboardVTT
	return writeFile(filepath.Join(dir, b.VTT), []byte(b.webVTT(info.Duration)))
}

// layOut decides on size and number of the pictures.
func layOut(info *Info) *Storyboard {
	v := info.Video
	scale := float64(tileShort) / float64(min(v.Width, v.Height))
	scale = min(scale, float64(tileLongest)/float64(max(v.Width, v.Height)))
	b := &Storyboard{
		Interval: round3(min(max(info.Duration/100, tileNearest), tileFarest)),
		Width:    even(float64(v.Width) * scale), Height: even(float64(v.Height) * scale),
		Columns: sheetSide, Rows: sheetSide,
	}
	if info.Duration > 0.01 {
		b.Interval = min(b.Interval, round3(info.Duration))
	}
	b.Count = max(1, int((info.Duration+b.Interval-0.001)/b.Interval))
	if b.Count < sheetSide*sheetSide {
		b.Columns = min(b.Count, sheetSide)
		b.Rows = (b.Count + sheetSide - 1) / sheetSide
	}
	return b
}

// keyframesWillDo: with two keyframes for each picture, none shows its
// neighbour's scene.
func keyframesWillDo(v *Video, interval float64) bool {
	return v.Keyframes > 0 && v.Duration/float64(v.Keyframes) <= interval/2
}

// chain makes [sheets]. It picks the frame in the middle of each interval: rounded to the nearest
// multiple, frames up to there belong to it, and the newest of them is taken.
// The last one is held to fill up.
//
// A black sheet comes before the others, and finish removes it: ffmpeg reports no
// progress until each of its outputs has begun, and a sheet takes a hundred intervals.
func (b *Storyboard) chain(info *Info, c caps) string {
	return strings.Join([]string{
		fmt.Sprintf("setpts=PTS-%.6f/TB", planTiming(info).skew),
		fmt.Sprintf("fps=fps=%.9f:start_time=0:round=near", 1/b.Interval),
		fmt.Sprintf("tpad=stop_mode=clone:stop=%d", b.Count), fmt.Sprintf("trim=end_frame=%d", b.Count),
		stillSize(info.Video, b.Width, b.Height, c),
		fmt.Sprintf("tile=layout=%dx%d", b.Columns, b.Rows), "tpad=start=1[sheets]",
	}, ",")
}

// takeStoryboard makes the storyboard of what ffmpeg wrote beside the renditions. A source
// that has none for whatever reason is published all the same.
func (o *Output) takeStoryboard(dir string, info *Info) error {
	folder := filepath.Join(dir, StoryboardFolder)
	b := layOut(info)
	err := b.finish(folder, info)
	if errors.Is(err, ErrNoPicture) {
		o.warn("there is no storyboard: %v", err)
		return os.RemoveAll(folder)
	}
	if err != nil {
		return fmt.Errorf("make storyboard: %w", err)
	}
	o.Storyboard = b
	return nil
}

// checkStoryboard makes sure that what is named is there.
func checkStoryboard(dir string, b *Storyboard) error {
	if b == nil {
		return nil
	}
	for _, name := range append([]string{b.VTT}, b.Sheets...) {
		if st, err := os.Stat(filepath.Join(dir, StoryboardFolder, name)); err != nil || st.Size() == 0 {
			return fmt.Errorf("%w: the storyboard's %q is missing or empty", ErrMismatch, name)
		}
	}
	return nil
}

// find lists the sheets that were written.
func (b *Storyboard) find(dir string) error {
	perSheet := b.Columns * b.Rows
	for i := 0; i*perSheet < b.Count; i++ {
		name := fmt.Sprintf(sheetPattern, i+1)
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Size() == 0 {
			return fmt.Errorf("%w: sheet %d was not written", ErrNoPicture, i+1)
		}
		b.Sheets = append(b.Sheets, name)
	}
	return nil
}

func (b *Storyboard) webVTT(duration float64) string {
	var s strings.Builder
	s.WriteString("WEBVTT\n")
	perSheet := b.Columns * b.Rows
	for i := range b.Count {
		from, to := float64(i)*b.Interval, float64(i+1)*b.Interval
		if i == b.Count-1 {
			to = max(duration, from+0.001)
		}
		at := i % perSheet
		fmt.Fprintf(&s, "\n%s --> %s\n%s#xywh=%d,%d,%d,%d\n", clock(from), clock(to), b.Sheets[i/perSheet],
			at%b.Columns*b.Width, at/b.Columns*b.Height, b.Width, b.Height)
	}
	return s.String()
}

// clock is WebVTT's form of a time.
func clock(v float64) string {
	d := time.Duration(v*1000+0.5) * time.Millisecond
	return fmt.Sprintf("%02d:%02d:%02d.%03d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60, d.Milliseconds()%1000)
}
