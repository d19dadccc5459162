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
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/media"
)

// switcher makes a finished generation the one that is served.
//
// The stable manifests are small files of their own that name the generation
// in every URI. Each is replaced by one rename, so a player has either the old
// one or the new one, and whichever it has leads to a whole generation. HLS is
// first; a process that dies between the two leaves DASH on the old version
// until the next attempt.
type switcher struct {
	public   string // the task's published directory
	mine     dirName
	keep     time.Duration
	out      *media.Output
	switched bool // mine is referred to, and must stay
}

func (s *switcher) run(ctx context.Context) error {
	// One at a time, so that no attempt decides by what another is replacing.
	lock, err := lockDir(ctx, s.public)
	if err != nil {
		return err
	}
	defer lock.Close()
	served, err := s.served()
	if err != nil {
		return err
	}
	for number := range served {
		if number > s.mine.number {
			return fmt.Errorf("generation %d is published already, and this attempt's is %d: another attempt has overtaken it",
				number, s.mine.number)
		}
	}
	if err := s.stamp(served); err != nil {
		return err
	}
	if err := s.replace(ctx); err != nil {
		return err
	}
	s.prune()
	return nil
}

// generationPattern finds what a manifest refers to.
var generationPattern = regexp.MustCompile(generationPrefix + `-\d{4,9}-[a-z2-7]{10}`)

// served finds the generations that the stable manifests refer to, by number.
func (s *switcher) served() (map[int]string, error) {
	served := map[int]string{}
	for _, name := range []string{media.MasterName, media.ManifestName} {
		text, err := os.ReadFile(filepath.Join(s.public, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read what is published: %w", err)
		}
		for _, m := range generationPattern.FindAllString(string(text), -1) {
			if d, ok := parseDirName(m); ok {
				served[d.number] = m
			}
		}
	}
	return served, nil
}

// stamp sets the time from which the generations served so far are old. It is
// done before they are replaced: a crash in between must not make one look
// older than it is.
func (s *switcher) stamp(served map[int]string) error {
	now := time.Now()
	for _, name := range served {
		err := os.Chtimes(filepath.Join(s.public, name), now, now)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("mark old generation: %w", err)
		}
	}
	return nil
}

// replace puts both manifests in their place.
func (s *switcher) replace(ctx context.Context) error {
	tmp, err := os.MkdirTemp(s.public, switchPrefix)
	if err != nil {
		return fmt.Errorf("make new manifests: %w", err)
	}
	defer os.RemoveAll(tmp)
	base := s.mine.String() + "/"
	if err := media.WriteMaster(tmp, s.out, base); err != nil {
		return err
	}
	if err := s.rebaseManifest(tmp, base); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if err := serveTree(tmp); err != nil {
		return err
	}
	if err := syncTree(ctx, tmp); err != nil {
		return err
	}
	// From here on there is no way back, cancelled or not.
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, name := range []string{media.MasterName, media.ManifestName} {
		if err := os.Rename(filepath.Join(tmp, name), filepath.Join(s.public, name)); err != nil {
			return fmt.Errorf("switch over: %w", err)
		}
		s.switched = true
	}
	return syncFile(s.public)
}

// switchPrefix begins the names of directories that manifests wait in.
const switchPrefix = ".switch-"

// rebaseManifest writes the generation's manifest with an address for all that
// is relative in it.
func (s *switcher) rebaseManifest(dir, base string) error {
	text, err := os.ReadFile(filepath.Join(s.public, s.mine.String(), media.ManifestName))
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

// prune removes generations that were replaced long enough ago, and what
// attempts that were killed have left. Whatever stands in the way, the next
// publish tries again.
func (s *switcher) prune() {
	served, err := s.served()
	if err != nil {
		return
	}
	entries, err := os.ReadDir(s.public)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(s.public, e.Name())
		// The lock is held: whose manifests wait there is not alive.
		if e.IsDir() && strings.HasPrefix(e.Name(), switchPrefix) {
			os.RemoveAll(path)
			continue
		}
		d, ok := parseDirName(e.Name())
		if !ok || d.scratch || d.stage != generationPrefix || d.number >= s.mine.number {
			continue
		}
		info, err := e.Info()
		if _, inUse := served[d.number]; inUse || err != nil || time.Since(info.ModTime()) < s.keep {
			continue
		}
		removeUnlocked(path)
	}
}
