package video

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/store"
)

// fileKind is a kind of files of a task. A file with links of several kinds counts as the first of them.
type fileKind int

const (
	servedFiles fileKind = iota
	replacedFiles
	unfinishedPublished
	otherPublished
	resultFiles
	sourceFiles
	unfinishedData
	otherData
	fileKinds
)

func (k fileKind) isRemovedData() bool {
	return k == resultFiles || k == sourceFiles || k == unfinishedData
}

func (k fileKind) isOther() bool { return k == otherData || k == otherPublished }

// linkedFile is a file with several hard links, and where those that were found are.
type linkedFile struct {
	kind                      fileKind
	size                      int64
	links                     uint64
	inData, known, inReplaced uint64
	replacedAgo               time.Duration // of the newest replaced generation that has it
}

// taskMeasure adds up the sizes of one task's files. One goroutine uses it.
type taskMeasure struct {
	bytes               [fileKinds]int64
	freedData, freedAll int64
	replaced            []replacedBytes
	linked              map[diskspace.FileID]*linkedFile
}

// measuredEntry is what a location has directly in a task's directory.
type measuredEntry struct {
	name     string
	complete bool  // not in a bucket without its manifest
	bytes    int64 // in a bucket
	ago      time.Duration
}

// measuredEntries lists what a location has in a task's directory.
func (p Location) measuredEntries(ctx context.Context, dir string) (found []measuredEntry, err error) {
	if p.Bucket != nil {
		artifacts, err := p.Bucket.storage.MeasureArtifacts(ctx, dir)
		for _, a := range artifacts {
			ago := p.Bucket.storage.Now().Sub(a.Modified)
			found = append(found, measuredEntry{path.Base(a.Name), a.Complete, a.Bytes, ago})
		}
		return found, err
	}
	entries, err := os.ReadDir(p.path(dir))
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return found, err
		}
		found = append(found, measuredEntry{e.Name(), true, 0, time.Since(info.ModTime())})
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return found, err
}

// add adds an entry of a task's directory with all that is below it.
func (m *taskMeasure) add(ctx context.Context, l Location, dir string, e measuredEntry, kind fileKind) error {
	if l.Bucket != nil {
		m.addFile(kind, e.bytes, e.ago)
		return nil
	}
	return diskspace.Walk(ctx, l.path(path.Join(dir, e.name)), func(info fs.FileInfo) {
		if links, id := diskspace.Links(info); links > 1 {
			m.addLink(id, links, kind, info.Size(), e.ago)
		} else {
			m.addFile(kind, info.Size(), e.ago)
		}
	})
}

// addFile adds a file, or several, without further links.
func (m *taskMeasure) addFile(kind fileKind, size int64, ago time.Duration) {
	m.bytes[kind] += size
	if kind.isRemovedData() {
		m.freedData += size
	}
	if !kind.isOther() {
		m.freedAll += size
	}
	if kind == replacedFiles {
		m.replaced = append(m.replaced, replacedBytes{ago, size})
	}
}

func (m *taskMeasure) addLink(id diskspace.FileID, links uint64, kind fileKind, size int64, ago time.Duration) {
	f := m.linked[id]
	if f == nil {
		if m.linked == nil {
			m.linked = make(map[diskspace.FileID]*linkedFile)
		}
		f = &linkedFile{kind: kind, replacedAgo: ago}
		m.linked[id] = f
	}
	f.kind, f.size, f.links = min(f.kind, kind), size, links
	if kind.isRemovedData() {
		f.inData++
	}
	if !kind.isOther() {
		f.known++
	}
	if kind == replacedFiles {
		f.inReplaced++
		f.replacedAgo = min(f.replacedAgo, ago)
	}
}

// addData adds what the data location has of a task.
func (m *taskMeasure) addData(ctx context.Context, l Location, dir string) error {
	entries, err := l.measuredEntries(ctx, dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		kind := otherData
		d, ok := parseDirName(e.name)
		switch {
		case slices.Contains(partialDownloadFiles, e.name):
			kind = unfinishedData
		case !ok || !slices.Contains(resultStages(), d.stage):
		case d.unfinished || !e.complete:
			kind = unfinishedData
		case d.stage == ingestStage:
			kind = sourceFiles
		default:
			kind = resultFiles
		}
		if err := m.add(ctx, l, dir, e, kind); err != nil {
			return err
		}
	}
	return nil
}

// addPublished adds what the publish location has of a task. Files of a task that is not served count as unfinished.
func (m *taskMeasure) addPublished(ctx context.Context, l Location, task store.ID) error {
	entries, err := l.measuredEntries(ctx, task.String())
	if err != nil || len(entries) == 0 {
		return err
	}
	stable, err := l.readStable(ctx, task)
	if err != nil {
		return err
	}
	for _, e := range entries {
		kind := otherPublished
		d, ok := parseDirName(e.name)
		switch {
		case e.name == media.MasterName || e.name == media.ManifestName:
			kind = servedFiles
		case strings.HasPrefix(e.name, switchPrefix):
			kind = unfinishedPublished
		case !ok || d.stage != generationPrefix:
		case e.complete && stable.refersTo(d):
			kind = servedFiles
		case e.complete && !d.unfinished && d.number < stable.newest():
			kind = replacedFiles
		default:
			kind = unfinishedPublished
		}
		if err := m.add(ctx, l, task.String(), e, kind); err != nil {
			return err
		}
	}
	return nil
}

// sizes returns the sizes of what was added.
func (m *taskMeasure) sizes(task store.ID) TaskSizes {
	s := TaskSizes{Task: task, FreedData: m.freedData, FreedAll: m.freedAll, replaced: m.replaced}
	bytes := m.bytes
	for _, f := range m.linked {
		bytes[f.kind] += f.size
		if f.inData == f.links {
			s.FreedData += f.size
		}
		if f.known == f.links {
			s.FreedAll += f.size
		}
		if f.inReplaced == f.links {
			s.replaced = append(s.replaced, replacedBytes{f.replacedAgo, f.size})
		}
	}
	s.Data = DataSizes{bytes[sourceFiles], bytes[resultFiles], bytes[unfinishedData], bytes[otherData]}
	s.Published = PublishedSizes{bytes[servedFiles], bytes[replacedFiles], bytes[unfinishedPublished], bytes[otherPublished]}
	return s
}
