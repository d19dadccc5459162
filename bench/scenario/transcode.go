package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/bench/transcodebench"
)

// Transcode is the real transcode of some clips: by Cuelight's stage, by the very
// ffmpeg command that this runs ("ffmpeg_bare"), and by one ffmpeg per rung, one
// after the other, with the commands that Cuelight has for a ladder of this rung
// alone ("ffmpeg_per_rung"). Each round begins with another of the three.
//
// CPU, in user and in system mode, is that of all processes: of Cuelight's stage
// also what checks the renditions, and the process with the engine while the
// stage works, but not the database's. Memory is the most that an ffmpeg had,
// and of Cuelight that of the process around it, too, which here has the whole
// benchmark in it.
type Transcode struct{ Clips []Clip }

// firstClip is what Cuelight's process has transcoded before: in a daemon, too, only
// the first transcode asks ffmpeg what it can do.
var firstClip = Clip{Size: "320x180", Rate: 10, For: time.Second}

// Clip is a source. File is looked for among the shared clips; where it is not, or
// has no name, a picture that moves all over is made, with a tone.
type Clip struct {
	File string

	Size string // "1280x720"
	Rate int    // frames/s
	For  time.Duration
}

// Names are those of its figures.
func (Transcode) Names() []string { return []string{"transcode"} }

// Measure measures one clip after the other.
func (m Transcode) Measure(ctx context.Context, t *Trial) error {
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: %s is not installed", errNotHere, name)
		}
	}
	for _, c := range m.Clips {
		if err := c.measure(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", c.name(t.MediaDir), err)
		}
	}
	t.Note("transcode", "CPU is that of all processes of the transcode stage, its checks of the renditions and the engine included, without the database; "+
		"the process has transcoded one clip before, as asking ffmpeg what it can do takes 0.2 s of CPU once")
	return nil
}

func (c Clip) measure(ctx context.Context, t *Trial) (err error) {
	dir, err := os.MkdirTemp(t.ScratchDir, "cuelight-bench-studio-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := shoot{dir: dir, url: t.URL}
	if s.source, err = c.source(ctx, t.MediaDir, dir); err != nil {
		return err
	}
	if s.before, err = firstClip.make(ctx, filepath.Join(dir, "first.mp4")); err != nil {
		return err
	}
	rehearsal, err := s.room("rehearsal")
	if err != nil {
		return err
	}
	if s.commands, err = transcodebench.RecordCommands(ctx, s.source, rehearsal); err != nil {
		return err
	}
	all := []struct {
		who string
		do  func(context.Context, string) (transcodebench.Cost, error)
	}{{t.systemName, s.cuelight}, {"ffmpeg_bare", s.bare}, {"ffmpeg_per_rung", s.perRung}}
	for i := range rotation(t.Round, len(all)) {
		room, err := s.room(all[i].who)
		if err != nil {
			return err
		}
		took, err := all[i].do(ctx, room)
		if err != nil {
			return fmt.Errorf("%s: %w", all[i].who, err)
		}
		of := "clip=" + c.name(t.MediaDir) + ","
		t.RecordFor(all[i].who, "transcode", of+"cpu", "CPU s", result.FromValue(took.CPU.Seconds()))
		t.RecordFor(all[i].who, "transcode", of+"wall", "wall s", result.FromValue(took.Wall.Seconds()))
		t.RecordFor(all[i].who, "transcode", of+"memory", "MiB", result.FromValue(float64(took.Memory)/(1<<20)))
	}
	return nil
}

// shoot is the work on a clip.
type shoot struct {
	dir, url       string
	before, source string
	commands       transcodebench.Commands
}

// room is an empty directory.
func (s *shoot) room(name string) (string, error) {
	path := filepath.Join(s.dir, name)
	return path, os.Mkdir(path, 0o755)
}

func (s *shoot) cuelight(ctx context.Context, room string) (transcodebench.Cost, error) {
	return transcodebench.RunStage(ctx, transcodebench.Job{URL: s.url, Before: s.before, Source: s.source, Dir: room}, s.commands.Whole)
}

func (s *shoot) bare(ctx context.Context, room string) (transcodebench.Cost, error) {
	return transcodebench.RunCommands(ctx, []transcodebench.Command{s.commands.Whole}, room)
}

func (s *shoot) perRung(ctx context.Context, room string) (transcodebench.Cost, error) {
	return transcodebench.RunCommands(ctx, s.commands.Each, room)
}

// name is the clip's in results.
func (c Clip) name(media string) string {
	if c.there(media) {
		return strings.TrimSuffix(c.File, filepath.Ext(c.File))
	}
	return fmt.Sprintf("generated_%sp%d_%v", c.Size, c.Rate, c.For)
}

func (c Clip) there(media string) bool {
	if media == "" || c.File == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(media, c.File))
	return err == nil
}

// source is the clip's path: below dir if it is made.
func (c Clip) source(ctx context.Context, media, dir string) (string, error) {
	if c.there(media) {
		return filepath.Abs(filepath.Join(media, c.File))
	}
	return c.make(ctx, filepath.Join(dir, "clip.mp4"))
}

// make makes the picture.
func (c Clip) make(ctx context.Context, path string) (string, error) {
	seconds := c.For.Seconds()
	cmd := exec.CommandContext(ctx, "ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error",
		"-f", "lavfi", "-i", fmt.Sprintf("testsrc2=size=%s:rate=%d:duration=%g", c.Size, c.Rate, seconds),
		"-f", "lavfi", "-i", fmt.Sprintf("sine=sample_rate=48000:duration=%g", seconds),
		"-c:v", "libx264", "-preset", "ultrafast", "-crf", "18", "-pix_fmt", "yuv420p", "-c:a", "aac", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make clip: %w: %s", err, out)
	}
	return path, nil
}
