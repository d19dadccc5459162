package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/media/captions"
)

// Captions is a text track, in a directory with a WebVTT file, and its segments with a playlist.
type Captions struct {
	// Dir is relative to the manifests, such as "captions-de".
	Dir string `json:"dir"`
	// Language is a BCP 47 tag; empty if unknown. Name is what a player's menu shows.
	Language string `json:"language,omitempty"`
	Name     string `json:"name"`
	// Default is shown unless the viewer chose otherwise. Forced has only what every viewer must read, such as signs. SDH also
	// describes sounds, for viewers who do not hear them.
	Default bool `json:"default,omitempty"`
	Forced  bool `json:"forced,omitempty"`
	SDH     bool `json:"sdh,omitempty"`
}

// AddCaptions writes the text of a WebVTT file into dir, next to the other tracks, and returns them all. Of the track it needs the
// language, the name and the flags.
func AddCaptions(dir string, others []Captions, track Captions, webvtt []byte, info *Info) ([]Captions, error) {
	dirs, names := map[string]bool{}, map[string]bool{}
	for i, o := range others {
		dirs[o.Dir], names[o.Name] = true, true
		if track.Default {
			others[i].Default = false // at most one is shown by default
		}
	}
	track.assignNames(len(others), dirs, names)
	cues, err := captions.Parse(CaptionsFile, webvtt, track.Language)
	if err == nil {
		err = captions.Write(filepath.Join(dir, track.Dir), captions.Fit(cues, 0, info.Duration), info.Duration)
	}
	if err != nil {
		return nil, fmt.Errorf("add captions: %w", spaceError(err))
	}
	return append(others, track), nil
}

// assignNames gives the track with this number a directory and a name that no other has.
func (c *Captions) assignNames(n int, dirs, names map[string]bool) {
	c.Name = menuName(c.Name, c.Language, fmt.Sprintf("Captions %d", n+1), names)
	base := strings.TrimSuffix("captions-"+strings.ToLower(c.Language), "-")
	c.Dir = base
	for n := 2; dirs[c.Dir]; n++ {
		c.Dir = fmt.Sprintf("%s-%d", base, n)
	}
	dirs[c.Dir] = true
}

const (
	// CaptionsFile is the WebVTT file in the directory of a track.
	CaptionsFile = captions.WholeName
	// MaxCaptionsBytes is its greatest size.
	MaxCaptionsBytes = captions.MaxBytes
)

// sourceTracks returns a track for each text subtitle stream of the source, in this order. None is shown by default: the flag
// of the source says nothing, because programs set it for the first track of every Matroska file.
func sourceTracks(info *Info) []Captions {
	dirs, names := map[string]bool{}, map[string]bool{}
	var tracks []Captions
	for i, s := range info.Subtitles {
		t := Captions{Language: bcp47(s.Language), Name: s.Title, Forced: s.Forced, SDH: s.SDH}
		t.assignNames(i, dirs, names)
		tracks = append(tracks, t)
	}
	return tracks
}

// SourceCaptions writes the text subtitle streams of a source into dir, with the times of the output. It reads the whole source
// once, and again if there are captions inside the pictures, to decode these. A stream that cannot be read, or has no text, is left
// out; a warning says so, unless it is often empty.
func (t Tools) SourceCaptions(ctx context.Context, src string, info *Info, dir string) (tracks []Captions, warnings []string, err error) {
	if len(info.Subtitles) == 0 {
		return nil, nil, nil
	}
	ctx, cancel := t.withTimeLimit(ctx, info.decodedSeconds())
	defer cancel()
	if tracks, warnings, err = t.withStepCounter().sourceCaptions(ctx, src, info, dir); err != nil {
		return nil, nil, fmt.Errorf("read captions: %w", err)
	}
	return tracks, warnings, nil
}

func (t Tools) sourceCaptions(ctx context.Context, src string, info *Info, dir string) (tracks []Captions, warnings []string, err error) {
	source, err := filepath.Abs(src)
	if err != nil {
		return nil, nil, err
	}
	work, err := os.MkdirTemp(dir, ".captions-")
	if err != nil {
		return nil, nil, spaceError(err)
	}
	defer os.RemoveAll(work)
	if err := t.extract(ctx, source, work, info); err != nil {
		return nil, nil, err
	}
	for i, track := range sourceTracks(info) {
		stream := info.Subtitles[i]
		zero := planTiming(info).begin() // where ffmpeg begins to read is zero in the file
		if stream.Codec == "ttml" {
			zero = info.Start // its documents have the times of the source
		}
		shift := time.Duration(-zero * float64(time.Second))
		err := rewriteCaptions(filepath.Join(work, stream.extractedName()), filepath.Join(dir, track.Dir), track.Language, shift, info)
		wrong, isWrong := errors.AsType[*captions.Error](err)
		switch {
		case stream.isOftenEmpty() && wrong == errNoText:
		case isWrong:
			warnings = append(warnings, fmt.Sprintf("%s is left out: %s", stream.label(), wrong.Reason))
		case err != nil:
			return nil, nil, spaceError(err)
		default:
			tracks = append(tracks, track)
		}
	}
	return tracks, warnings, nil
}

// extract takes out the text of all streams.
func (t Tools) extract(ctx context.Context, source, dir string, info *Info) error {
	var streams []Subtitle
	for _, s := range info.Subtitles {
		if !s.isInPicture() {
			streams = append(streams, s)
		} else if err := t.extractClosedCaptions(ctx, source, dir, s, info); err != nil {
			return err
		}
	}
	if len(streams) == 0 {
		return nil
	}
	return t.extractSubtitles(ctx, source, dir, streams, info)
}

// extraction says how ffmpeg takes out a codec's text, and the ending of the file's name: SubRip, ASS and TTML are copied, because
// package captions understands them better.
func (s Subtitle) extraction() (ext string, args []string) {
	switch s.Codec {
	case "subrip", "srt":
		return ".srt", []string{"-c", "copy", "-f", "srt"}
	case "ass", "ssa":
		return ".ass", []string{"-c", "copy", "-f", "ass"}
	case pictureCaptions, teletext: // in WebVTT, ffmpeg neither escapes a text nor says where it is
		return ".ass", []string{"-c:s", "ass", "-f", "ass"}
	case "ttml": // ffmpeg has no decoder; each sample is a document
		return ".ttml", []string{"-c", "copy", "-f", "data"}
	}
	return ".vtt", []string{"-c:s", "webvtt", "-f", "webvtt"}
}

func (s Subtitle) extractedName() string {
	ext, _ := s.extraction()
	return strconv.Itoa(s.Index) + ext
}

// extractSubtitles takes out all streams at once, and if that fails, each of them alone: a damaged stream must not cost the others.
func (t Tools) extractSubtitles(ctx context.Context, source, dir string, streams []Subtitle, info *Info) error {
	options := append(resyncOptions(info.Container), planTiming(info).inputOptions()...)
	if slices.ContainsFunc(streams, func(s Subtitle) bool { return s.Codec == teletext }) {
		// Of teletext, other pages are left out. A page is shown until the next one.
		options = append(options, "-txt_format", "text", "-txt_page", "subtitle", "-fix_sub_duration")
	}
	args := t.ffmpegArgs(input(source, options...)...)
	for _, s := range streams {
		_, options := s.extraction()
		args = slices.Concat(args, []string{"-map", "0:" + strconv.Itoa(s.Index)}, options, []string{"file:" + s.extractedName()})
	}
	args = append(args, readAllStreams(info)...)
	out, err := t.run(ctx, command{tool: "ffmpeg", purpose: "captions", args: args, dir: dir, source: source, noProgress: true})
	exit, err := exitBySource(err)
	if err == nil && exit != nil {
		err = out.preferDiskError(nil)
	}
	if err != nil || exit == nil || len(streams) == 1 {
		return err
	}
	for _, s := range streams {
		if err := t.extractSubtitles(ctx, source, dir, []Subtitle{s}, info); err != nil {
			return err
		}
	}
	return nil
}

var errNoText = &captions.Error{Reason: "it has no text within the video"}

// rewriteCaptions writes the text of a subtitle file into the new directory dir. A file without any within the video is errNoText.
func rewriteCaptions(file, dir, language string, shift time.Duration, info *Info) error {
	in, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return &captions.Error{Reason: "ffmpeg cannot read it"}
	}
	if err != nil {
		return err
	}
	defer in.Close()
	raw, err := io.ReadAll(io.LimitReader(in, captions.MaxBytes+1)) // Parse refuses more
	if err != nil {
		return err
	}
	cues, err := captions.Parse(file, raw, language)
	if err != nil && !errors.Is(err, captions.ErrNoText) {
		return err
	}
	if cues = captions.Fit(cues, shift, info.Duration); len(cues) == 0 {
		return errNoText
	}
	return captions.Write(dir, cues, info.Duration)
}

// IsSourceCaptions reports whether a worker may deliver a file of this name: the whole text of a subtitle stream. The
// coordinator makes the segments.
func IsSourceCaptions(info *Info, name string) bool {
	dir, file := path.Split(name)
	return file == captions.WholeName && slices.ContainsFunc(sourceTracks(info), func(t Captions) bool { return t.Dir+"/" == dir })
}

// AcceptCaptions writes captions again that an untrusted worker has delivered in dir: viewers get none of the worker's
// bytes but its text, if the source has such a stream. It returns a [*RefusedError] for a file that is not what
// [Tools.SourceCaptions] writes, and a warning for a stream without one.
func AcceptCaptions(dir string, info *Info) (tracks []Captions, warnings []string, err error) {
	for i, track := range sourceTracks(info) {
		final, made := filepath.Join(dir, track.Dir), filepath.Join(dir, "."+track.Dir)
		if _, err := os.Stat(filepath.Join(final, CaptionsFile)); errors.Is(err, os.ErrNotExist) {
			if stream := info.Subtitles[i]; !stream.isOftenEmpty() {
				warnings = append(warnings, fmt.Sprintf("the subtitle stream %d is left out: the worker found no text", stream.Index))
			}
			continue
		}
		err := rewriteCaptions(filepath.Join(final, CaptionsFile), made, track.Language, 0, info)
		if wrong, ok := errors.AsType[*captions.Error](err); ok {
			return nil, nil, refuse(track.Dir, "%v", wrong)
		}
		if err == nil {
			err = moveFiles(made, final)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("accept captions: %w", err)
		}
		tracks = append(tracks, track)
	}
	return tracks, warnings, nil
}

// moveFiles moves the files of a directory into another and removes the first. After a crash in between, all files of either are whole.
func moveFiles(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return os.Remove(from)
}
