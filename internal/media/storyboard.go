package media

import (
	"context"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// tileShortSide is the short side of a storyboard's pictures, in pixels.
	tileShortSide = 90
	// maxTileSide limits pictures of unusual shapes.
	maxTileSide = 320
	// sheetSide is the number of columns and of rows of a full sheet.
	sheetSide = 10
	// The interval of pictures is a hundredth of the duration, within these
	// limits in seconds.
	minTileInterval = 1.0
	maxTileInterval = 10.0

	// StoryboardDir is the directory of a storyboard, within the output directory.
	StoryboardDir = "storyboard"

	storyboardVTT = "storyboard.vtt"
	sheetPattern  = "storyboard-%03d.jpg"
)

// storyboard writes small pictures of the whole video into [StoryboardDir] in dir, which must not exist: many on a sheet, and a
// WebVTT file that maps times to parts of sheets. The interval is a hundredth of the duration, but between one and ten seconds. The
// pictures come from the smallest rendition in dir, not from the source. Output without video gives [ErrNoPicture].
//
// It runs an ffmpeg of its own. As another output of the ffmpeg that makes the renditions, ffmpeg 7 would keep the frames of all
// outputs in memory until each has one, and report no progress.
func (t Tools) storyboard(ctx context.Context, dir string, info *Info, out *Output) (*Storyboard, error) {
	if len(out.Video) == 0 {
		return nil, ErrNoPicture
	}
	r := slices.MinFunc(out.Video, func(a, b Rendition) int { return a.Width*a.Height - b.Width*b.Height })
	frames, err := openRendition(dir, r)
	if err != nil {
		return nil, err
	}
	defer frames.Close()
	folder := filepath.Join(dir, StoryboardDir)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return nil, err
	}
	b := newStoryboard(info.Duration, r.Width, r.Height)
	args := t.ffmpegArgs("-progress", "pipe:1", "-protocol_whitelist", "pipe", "-f", "mov", "-i", "pipe:0", "-vf", b.filters(),
		"-q:v", "5", "-f", "image2", sheetPattern)
	reader := newProgressReader(info.Duration, nil, time.Now)
	cmd := command{tool: "ffmpeg", purpose: "storyboard", args: args, dir: folder, stdin: frames, stdout: reader}
	if _, err := t.run(ctx, cmd); err != nil {
		return nil, err
	}
	return b, b.finish(folder, info)
}

// finish finds the sheets and writes the WebVTT file.
func (b *Storyboard) finish(dir string, info *Info) error {
	if err := b.findSheets(dir); err != nil {
		return err
	}
	b.VTT = storyboardVTT
	return writeFile(filepath.Join(dir, b.VTT), []byte(b.webVTT(info.Duration)))
}

// newStoryboard decides the size and number of pictures.
func newStoryboard(duration float64, width, height int) *Storyboard {
	scale := float64(tileShortSide) / float64(min(width, height))
	scale = min(scale, float64(maxTileSide)/float64(max(width, height)))
	b := &Storyboard{
		Interval: round3(min(max(duration/100, minTileInterval), maxTileInterval)),
		Width:    even(float64(width) * scale), Height: even(float64(height) * scale),
		Columns: sheetSide, Rows: sheetSide,
	}
	if duration > 0.01 {
		b.Interval = min(b.Interval, round3(duration))
	}
	b.Count = max(1, int((duration+b.Interval-0.001)/b.Interval))
	if b.Count < sheetSide*sheetSide {
		b.Columns = min(b.Count, sheetSide)
		b.Rows = (b.Count + sheetSide - 1) / sheetSide
	}
	return b
}

// filters make the sheets. They select the latest frame up to the middle of each
// interval, by rounding to the nearest multiple. The last frame is used even if its
// duration is unknown, and repeated to fill the sheet.
func (b *Storyboard) filters() string {
	return strings.Join([]string{
		"setpts=PTS-STARTPTS", fmt.Sprintf("fps=fps=%.9f:start_time=0:round=near:eof_action=pass", 1/b.Interval),
		fmt.Sprintf("tpad=stop_mode=clone:stop=%d", b.Count), fmt.Sprintf("trim=end_frame=%d", b.Count),
		fmt.Sprintf("scale=w=%d:h=%d:flags=bicubic", b.Width, b.Height), jpegColours,
		fmt.Sprintf("tile=layout=%dx%d", b.Columns, b.Rows),
	}, ",")
}

// checkStoryboard checks that the storyboard's files exist.
func checkStoryboard(dir string, b *Storyboard) error {
	if b == nil {
		return nil
	}
	for _, name := range append([]string{b.VTT}, b.Sheets...) {
		if st, err := os.Stat(filepath.Join(dir, StoryboardDir, name)); err != nil || st.Size() == 0 {
			return fmt.Errorf("%w: the storyboard's %q is missing or empty", ErrMismatch, name)
		}
	}
	return nil
}

// findSheets lists the written sheets.
func (b *Storyboard) findSheets(dir string) error {
	perSheet := b.Columns * b.Rows
	for i := 0; i*perSheet < b.Count; i++ {
		name := fmt.Sprintf(sheetPattern, i+1)
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Size() == 0 {
			return fmt.Errorf("sheet %d was not written", i+1)
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
		fmt.Fprintf(&s, "\n%s --> %s\n%s#xywh=%d,%d,%d,%d\n", formatTimestamp(from), formatTimestamp(to),
			b.Sheets[i/perSheet], at%b.Columns*b.Width, at/b.Columns*b.Height, b.Width, b.Height)
	}
	return s.String()
}

// formatTimestamp formats a WebVTT timestamp.
func formatTimestamp(v float64) string {
	d := time.Duration(v*1000+0.5) * time.Millisecond
	return fmt.Sprintf("%02d:%02d:%02d.%03d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60,
		d.Milliseconds()%1000)
}

// thumbnails is the adaptation set of a DASH manifest, from which players show pictures next to the time bar.
func (b *Storyboard) thumbnails(dir string) mpdSet {
	total, seconds := int64(0), b.Interval*float64(b.Columns*b.Rows)
	for _, sheet := range b.Sheets {
		if info, err := os.Stat(filepath.Join(dir, StoryboardDir, sheet)); err == nil {
			total += info.Size()
		}
	}
	return mpdSet{
		ContentType: "image", MimeType: "image/jpeg",
		Streams: []mpdRepr{{
			ID: StoryboardDir, Bandwidth: max(1, int64(float64(8*total)/(seconds*float64(max(len(b.Sheets), 1))))),
			Width: b.Width * b.Columns, Height: b.Height * b.Rows,
			Tiles: &mpdValue{"http://dashif.org/thumbnail_tile", fmt.Sprintf("%dx%d", b.Columns, b.Rows)},
			Template: &mpdTemplate{
				Timescale: 1000, Duration: int64(math.Round(1000 * seconds)), Start: 1,
				Media: path.Join(StoryboardDir, "storyboard-$Number%03d$.jpg"),
			},
		}},
	}
}
