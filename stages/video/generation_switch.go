package video

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// generationSwitch makes a finished generation the one that is served.
//
// The stable manifests are small files of their own that name the generation
// in every URI. Each is replaced by one rename, so a player has either the old
// one or the new one, and whichever it has leads to a whole generation. HLS is
// first; a process that dies between the two leaves DASH on the old version
// until the next attempt.
//
// The new manifests wait in a directory beside them, which is made before the
// generation gets its name. So a generation that was never served, because its
// process died before, can be told from one that was: its master.m3u8 still
// waits.
type generationSwitch struct {
	publishedDir string // the task's published directory
	workdir      *workdir
	keepOld      time.Duration
	out          *media.Output
	checkCurrent func(ctx context.Context) error // whether the attempt still is; nil: yes
	switched     bool                            // mine is referred to, and must stay
}

func (s *generationSwitch) run(ctx context.Context, job *stages.Job) error {
	job.Progress(stages.Progress{Percent: -1, Note: "switching"})
	old, err := s.switchLocked(ctx)
	if err != nil || old == nil {
		return err
	}
	defer old.close()
	var freed int64
	_, _ = old.remove(ctx, &freed, reportSteps(job, -1, "removing").counter()) // what is left is scratch by now
	return nil
}

// switchLocked does what one attempt may do at a time, so that none decides by what
// another is replacing. It returns what is to be removed.
func (s *generationSwitch) switchLocked(ctx context.Context) (*removalList, error) {
	lock, err := lockDir(ctx, s.publishedDir)
	if err != nil {
		return nil, err
	}
	defer unlock(lock)
	if s.checkCurrent != nil {
		if err := s.checkCurrent(ctx); err != nil {
			return nil, err
		}
	}
	served, err := servedGenerations(s.publishedDir)
	if err != nil {
		return nil, err
	}
	if newest := served.newest(); newest > s.workdir.number {
		return nil, fmt.Errorf("generation %d is published already, and this attempt's is %d: another attempt has overtaken it",
			newest, s.workdir.number)
	}
	if err := s.touchServed(served); err != nil {
		return nil, err
	}
	if err := s.replaceManifests(ctx); err != nil {
		return nil, err
	}
	return s.findRemovable(isLocal(lock)), nil
}

// generationPattern finds what a manifest refers to.
var generationPattern = regexp.MustCompile(generationPrefix + `-\d{4,9}-[a-z2-7]{10}`)

// generationSet are some of a task's, by number.
type generationSet map[int]string

func (g generationSet) newest() int {
	newest := 0
	for number := range g {
		newest = max(newest, number)
	}
	return newest
}

// servedGenerations finds the generations that the manifests in dir refer to.
func servedGenerations(dir string) (generationSet, error) {
	served := generationSet{}
	for _, name := range []string{media.MasterName, media.ManifestName} {
		if err := served.addReferenced(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return served, nil
}

// addReferenced finds those that one manifest refers to, if it is there.
func (g generationSet) addReferenced(manifest string) error {
	text, err := os.ReadFile(manifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what is published: %w", err)
	}
	for _, m := range generationPattern.FindAllString(string(text), -1) {
		if d, ok := parseDirName(m); ok {
			g[d.number] = m
		}
	}
	return nil
}

// touchServed sets the time from which the generations served so far are old. It is
// done before they are replaced: a crash in between must not make one look
// older than it is.
func (s *generationSwitch) touchServed(served generationSet) error {
	for _, name := range served {
		if err := touch(filepath.Join(s.publishedDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("mark old generation: %w", err)
		}
	}
	return nil
}

// replaceManifests gives the generation its name and puts both manifests in their place.
func (s *generationSwitch) replaceManifests(ctx context.Context) error {
	tmp, err := os.MkdirTemp(s.publishedDir, switchPrefix)
	if err != nil {
		return fmt.Errorf("make new manifests: %w", err)
	}
	defer s.discardManifests(tmp)
	final := s.workdir.dirName
	final.unfinished = false
	base := final.String() + "/"
	if err := media.WriteMaster(tmp, s.out, base); err != nil {
		return err
	}
	if err := s.rebaseManifest(tmp, base); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if err := makeTreeReadable(tmp, func() {}); err != nil {
		return err
	}
	if err := syncTree(ctx, tmp, func() {}); err != nil {
		return err
	}
	if err := s.workdir.rename(); err != nil {
		return err
	}
	// From here on there is no way back, cancelled or not.
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, name := range []string{media.MasterName, media.ManifestName} {
		if err := os.Rename(filepath.Join(tmp, name), filepath.Join(s.publishedDir, name)); err != nil {
			return fmt.Errorf("switch over: %w", err)
		}
		s.switched = true
	}
	return syncFile(s.publishedDir)
}

// discardManifests removes the directory of the manifests last: it is what tells that
// the generation was never served.
func (s *generationSwitch) discardManifests(tmp string) {
	if !s.switched {
		s.workdir.removeFinished()
	}
	os.RemoveAll(tmp)
}

// switchPrefix begins the names of directories that manifests wait in.
const switchPrefix = ".switch-"

// rebaseManifest writes the generation's manifest with an address for all that
// is relative in it.
func (s *generationSwitch) rebaseManifest(dir, base string) error {
	text, err := os.ReadFile(filepath.Join(s.workdir.path, media.ManifestName))
	if err != nil {
		return err
	}
	if text, err = withBaseURL(text, base); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, media.ManifestName), text, servedFileMode)
}

// withBaseURL adds a BaseURL to an MPD: the first of its children, but for
// ProgramInformation, as the schema wants it.
func withBaseURL(mpd []byte, base string) ([]byte, error) {
	d := xml.NewDecoder(bytes.NewReader(mpd))
	depth, at := 0, int64(-1)
	for {
		token, err := d.Token()
		if err == io.EOF {
			return nil, errors.New("the manifest has no MPD element")
		}
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; depth == 1 {
				at = d.InputOffset()
			} else if depth == 2 && t.Name.Local != "ProgramInformation" {
				return insertBaseURL(mpd, at, base), nil
			}
		case xml.EndElement:
			if depth--; depth == 1 {
				at = d.InputOffset()
			} else if depth == 0 {
				return nil, errors.New("the manifest's MPD element is empty")
			}
		}
	}
}

func insertBaseURL(mpd []byte, at int64, base string) []byte {
	var b bytes.Buffer
	b.Write(mpd[:at])
	b.WriteString("\n  <BaseURL>")
	xml.EscapeText(&b, []byte(base))
	b.WriteString("</BaseURL>")
	b.Write(mpd[at:])
	return b.Bytes()
}

// findRemovable finds the generations that were replaced long enough ago, and what
// attempts that were killed have left. Whatever stands in the way, the next
// publish or a Tidier tries again.
func (s *generationSwitch) findRemovable(seen bool) *removalList {
	d, err := newRemovalList(s.publishedDir)
	if err != nil {
		return nil
	}
	// Who holds the directory's lock, and would see another's, is alone.
	alone := Cleaner{MinIdle: -1}
	_ = d.addOldGenerations(s.keepOld, func(e fs.DirEntry) bool { return alone.isAbandoned(d, e, seen) })
	return d
}
