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

	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// generationSwitch makes a finished generation the served one.
//
// The stable manifests are separate small files that name the generation in every
// URI. A rename replaces each of them, so a player gets either the old or the new
// one, and both refer to a complete generation. HLS comes first; if the process
// dies between the two, DASH stays on the old version until the next attempt.
//
// The new manifests are prepared in a directory next to the stable ones before
// the generation gets its name. If its process dies before it was served, its
// master.m3u8 is still in that directory; this distinguishes it from a generation
// that was served and replaced.
type generationSwitch struct {
	publishedDir string // of the task
	workdir      *workdir
	keepOld      time.Duration
	checkCurrent func(ctx context.Context) error // fails if the attempt was overtaken; may be nil
	switched     bool                            // a manifest refers to workdir, so it must stay
}

func (s *generationSwitch) run(ctx context.Context, job *stages.Job) error {
	job.Progress(stages.Progress{Percent: -1, Note: "switching"})
	old, err := s.switchLocked(ctx)
	if err != nil || old == nil {
		return err
	}
	defer old.close()
	var freed int64
	// A later attempt finds the rest by its names of unfinished directories.
	_, _ = old.remove(ctx, &freed, reportSteps(job, -1, "removing").counter())
	return nil
}

// switchLocked does everything that requires the lock of the published directory. It
// returns what to remove.
func (s *generationSwitch) switchLocked(ctx context.Context) (*removalList, error) {
	lock, err := lockDir(ctx, s.publishedDir)
	if err != nil {
		return nil, err
	}
	defer flock.Unlock(lock)
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
		return nil, fmt.Errorf("another attempt has overtaken this one: it published generation %d, this one is %d",
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

// generationPattern finds the generations that a manifest refers to.
var generationPattern = regexp.MustCompile(generationPrefix + `-\d{4,9}-[a-z2-7]{10}`)

// generationSet maps numbers to the names of generations.
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

// addReferenced adds the generations that a manifest refers to, if it exists.
func (g generationSet) addReferenced(manifest string) error {
	text, err := os.ReadFile(manifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read published manifest: %w", err)
	}
	g.add(string(text))
	return nil
}

// add adds the generations that the text of a manifest refers to.
func (g generationSet) add(text string) {
	for _, m := range generationPattern.FindAllString(text, -1) {
		if d, ok := parseDirName(m); ok {
			g[d.number] = m
		}
	}
}

// touchServed sets the time from which the served generations count as old. It runs
// before they are replaced: after a crash in between, they are not too old.
func (s *generationSwitch) touchServed(served generationSet) error {
	for _, name := range served {
		if err := touch(filepath.Join(s.publishedDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("touch old generation: %w", err)
		}
	}
	return nil
}

// replaceManifests gives the generation its name and replaces both manifests.
func (s *generationSwitch) replaceManifests(ctx context.Context) error {
	tmp, err := os.MkdirTemp(s.publishedDir, switchPrefix)
	if err != nil {
		return fmt.Errorf("create new manifests: %w", err)
	}
	defer s.discardManifests(tmp)
	final := s.workdir.dirName
	final.unfinished = false
	base := final.String() + "/"
	if err := s.rebaseManifests(tmp, base); err != nil {
		return fmt.Errorf("write manifests: %w", err)
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
	// The next step is final, even if the context is cancelled.
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, name := range []string{media.MasterName, media.ManifestName} {
		err := os.Rename(filepath.Join(tmp, name), filepath.Join(s.publishedDir, name))
		if name == media.ManifestName && errors.Is(err, fs.ErrNotExist) { // an encrypted video has none
			err = os.RemoveAll(filepath.Join(s.publishedDir, name))
		}
		if err != nil {
			return fmt.Errorf("replace manifest: %w", err)
		}
		s.switched = true
	}
	return syncFile(s.publishedDir)
}

// discardManifests removes the directory of the manifests last, because it shows that
// the generation was never served.
func (s *generationSwitch) discardManifests(tmp string) {
	if !s.switched {
		s.workdir.removeFinished()
	}
	os.RemoveAll(tmp)
}

// switchPrefix starts the names of the directories of prepared manifests.
const switchPrefix = ".switch-"

// rebaseManifests writes the stable manifests: those of the generation, with its address before every URI.
func (s *generationSwitch) rebaseManifests(dir, base string) error {
	texts, err := rebasedManifests(base, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(s.workdir.path, name)) })
	for i, name := range []string{media.MasterName, media.ManifestName} {
		if err == nil && texts[i] != nil {
			err = os.WriteFile(filepath.Join(dir, name), texts[i], servedFileMode)
		}
	}
	return err
}

// rebasedManifests reads the manifests of a generation, and returns those of the stable address: the second is nil if there is none.
func rebasedManifests(base string, read func(name string) ([]byte, error)) (texts [2][]byte, err error) {
	master, err := read(media.MasterName)
	if err != nil {
		return texts, err
	}
	texts[0] = []byte(media.RebaseMaster(string(master), base))
	mpd, err := read(media.ManifestName)
	if errors.Is(err, fs.ErrNotExist) { // it is encrypted
		return texts, nil
	}
	if err == nil {
		texts[1], err = withBaseURL(mpd, base)
	}
	return texts, err
}

// withBaseURL adds a BaseURL to an MPD, as the first child after ProgramInformation,
// which the schema requires.
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

// findRemovable lists old generations and what killed attempts left. After an error, the
// next publish or a Cleaner tries again.
func (s *generationSwitch) findRemovable(locksVisible bool) *removalList {
	d, err := newRemovalList(s.publishedDir)
	if err != nil {
		return nil
	}
	// The caller holds the directory's lock, so no other attempt works here if locks
	// are visible.
	cleaner := Cleaner{MinIdle: -1}
	_ = d.addOldGenerations(s.keepOld, func(e fs.DirEntry) bool { return cleaner.isAbandoned(d, e, locksVisible) })
	return d
}
