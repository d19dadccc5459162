package upload

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// What is in an upload's directory, whose name is its id. A directory without
// a state is rubbish. An upload is complete when it has a source.
const (
	stateFile      = "state.json"
	partFile       = "part"       // what has come; as long as there is no source
	unverifiedFile = "unverified" // how much of part is certain, while a checksum is being awaited
	sourceFile     = "source"     // the complete file; an ending may follow
)

const (
	dirMode  = 0o700
	fileMode = 0o600
)

// state is what is written down about an upload. It is replaced as a whole.
type recordState struct {
	Length         int64             `json:"length"`         // negative: not known
	MaxLength      int64             `json:"most,omitempty"` // then it is not longer than this
	SingleRequest  bool              `json:"one_shot,omitempty"`
	Principal      string            `json:"principal"`
	Metadata       map[string]string `json:"metadata"`
	MetadataHeader string            `json:"header,omitempty"` // Upload-Metadata as it came
	Created        time.Time         `json:"created"`
	SubmittedAt    time.Time         `json:"handed,omitzero"` // when OnComplete returned
	Task           string            `json:"task,omitempty"`
	Existed        bool              `json:"existed,omitempty"`
	RequestIDTaken bool              `json:"request_taken,omitempty"` // its request id is another task's
	TaskGoneSince  time.Time         `json:"gone_since,omitzero"`     // when its task was first missed
}

// entry is an upload as it is found on disk.
type record struct {
	Upload
	state      recordState
	offset     int64     // how much has come
	lastWrite  time.Time // when something came last
	sourceName string    // the complete file's name; empty: not complete
}

func (e *record) isComplete() bool { return e.sourceName != "" }

// full: all is there, but has not been made a complete file of.
func (e *record) hasAllBytes() bool { return !e.isComplete() && e.offset == e.state.Length }

var idPattern = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// newID has 130 random bits.
func newID() string { return rand.Text() }

// load looks an upload up, whoever's it is.
func (u *Uploads) load(id string) (*record, error) {
	if !idPattern.MatchString(id) {
		return nil, errNotFound
	}
	raw, err := u.root.ReadFile(filepath.Join(id, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read upload: %w", err)
	}
	e := &record{}
	if err := json.Unmarshal(raw, &e.state); err != nil {
		return nil, fmt.Errorf("read upload %s: %w", id, err)
	}
	if e.Upload, err = newUpload(e.state.Metadata); err != nil {
		return nil, fmt.Errorf("read upload %s: %w", id, err)
	}
	e.ID, e.Principal, e.Created = id, e.state.Principal, e.state.Created
	e.Size, e.Task = e.state.Length, e.state.Task
	e.Existed = e.state.Existed
	return e, u.loadOffset(e)
}

// measure finds out how much there is.
func (u *Uploads) loadOffset(e *record) error {
	found, err := u.findSource(e)
	if found || err != nil {
		return err
	}
	info, err := u.root.Lstat(filepath.Join(e.ID, partFile))
	if errors.Is(err, fs.ErrNotExist) {
		// It was completed between the two looks, or deleted.
		if found, err = u.findSource(e); !found && err == nil {
			err = errNotFound
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("read upload: %w", err)
	}
	e.offset, e.lastWrite = info.Size(), info.ModTime()
	if e.lastWrite.Before(e.Created) {
		e.lastWrite = e.Created
	}
	if certain, ok := u.verifiedOffset(e.ID); ok {
		e.offset = min(e.offset, certain)
	}
	return nil
}

// measureSource looks for the complete file.
func (u *Uploads) findSource(e *record) (found bool, err error) {
	source := sourceFile + safeExtension(e.Name)
	info, err := u.root.Lstat(filepath.Join(e.ID, source))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read upload: %w", err)
	}
	e.sourceName, e.Path = source, filepath.Join(u.dir, e.ID, source)
	e.offset, e.Size, e.lastWrite = info.Size(), info.Size(), info.ModTime()
	return true, nil
}

// mark reads how much of part is certain, if that is not all.
func (u *Uploads) verifiedOffset(id string) (certain int64, ok bool) {
	raw, err := u.root.ReadFile(filepath.Join(id, unverifiedFile))
	if err != nil {
		return 0, false
	}
	certain, _ = parseSize(string(raw)) // not ours: nothing is certain
	return certain, true
}

// setMark notes, durably, that what comes now may have to go again.
func (u *Uploads) setVerifiedOffset(id string, certain int64) error {
	if err := u.replaceFile(id, unverifiedFile, []byte(strconv.FormatInt(certain, 10))); err != nil {
		return fmt.Errorf("prepare upload: %w", diskError(err))
	}
	return nil
}

func (u *Uploads) clearVerifiedOffset(id string) error {
	if err := u.root.Remove(filepath.Join(id, unverifiedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open upload: %w", err)
	}
	return nil
}

// openPart opens what has come for more, without what was never verified. The
// caller holds the upload.
func (u *Uploads) openPart(e *record) (*os.File, error) {
	f, err := u.root.OpenFile(filepath.Join(e.ID, partFile), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("open upload: %w", err)
	}
	err = f.Truncate(e.offset)
	if err == nil {
		err = u.clearVerifiedOffset(e.ID)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open upload: %w", err)
	}
	return f, nil
}

// create fills the directory of a new upload, which the caller holds already:
// one that is there without being held would be taken for what a crash has
// left. The state comes last. Before that, there is nothing.
func (u *Uploads) createFiles(e *record) error {
	part, err := u.root.OpenFile(filepath.Join(e.ID, partFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err == nil {
		err = part.Close()
	}
	if err == nil {
		err = u.save(e)
	}
	if err == nil {
		err = u.syncDir(".")
	}
	if err != nil {
		return fmt.Errorf("create upload: %w", diskError(err))
	}
	return nil
}

// save writes an upload's state.
func (u *Uploads) save(e *record) error {
	raw, err := json.Marshal(e.state)
	if err != nil {
		return fmt.Errorf("write upload: %w", err)
	}
	if err := u.replaceFile(e.ID, stateFile, raw); err != nil {
		return fmt.Errorf("write upload: %w", err)
	}
	return nil
}

// replace writes a small file of an upload's, durably: after a crash it is the
// old or the new one.
func (u *Uploads) replaceFile(id, name string, content []byte) error {
	temporary := filepath.Join(id, name+".new")
	f, err := u.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := u.root.Rename(temporary, filepath.Join(id, name)); err != nil {
		return err
	}
	return u.syncDir(id)
}

func (u *Uploads) syncDir(name string) error {
	d, err := u.root.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// remove deletes an upload. Its state goes first: what a crash leaves of it is
// then rubbish, and nothing that could be continued. The caller holds it.
func (u *Uploads) deleteFiles(id string) error {
	if err := u.root.Remove(filepath.Join(id, stateFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete upload: %w", err)
	}
	if err := u.root.RemoveAll(id); err != nil {
		return fmt.Errorf("delete upload: %w", err)
	}
	return nil
}

// ids lists the directories of uploads, rubbish included.
func (u *Uploads) ids(ctx context.Context) ([]string, error) {
	d, err := u.root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("list uploads: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list uploads: %w", err)
	}
	var ids []string
	for _, name := range names {
		if idPattern.MatchString(name) {
			ids = append(ids, name)
		}
	}
	return ids, ctx.Err()
}

// unfinished reads the uploads that are not complete.
func (u *Uploads) unfinished(ctx context.Context) ([]*record, error) {
	ids, err := u.ids(ctx)
	if err != nil {
		return nil, err
	}
	var all []*record
	for _, id := range ids {
		// Most are complete, and wait for their task: those are not read.
		if _, err := u.root.Lstat(filepath.Join(id, partFile)); err != nil {
			continue
		}
		e, err := u.load(id)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			u.options.OnError(id, err)
			continue
		}
		if !e.isComplete() {
			all = append(all, e)
		}
	}
	return all, nil
}
