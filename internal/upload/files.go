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

// The files in an upload's directory. The directory's name is the id. A directory without
// a state is an orphan.
const (
	stateFile      = "state.json"
	partFile       = "part"       // the received bytes; exists until the file is complete
	unverifiedFile = "unverified" // the verified offset, while a checksum is pending
	sourceFile     = "source"     // the complete file; an extension may follow
)

const (
	dirMode  = 0o700
	fileMode = 0o600
)

// recordState is the content of stateFile.
type recordState struct {
	Length         int64             `json:"length"`               // negative if unknown
	MaxLength      int64             `json:"max_length,omitempty"` // if Length is unknown
	SingleRequest  bool              `json:"single_request,omitempty"`
	Principal      string            `json:"principal"`
	Metadata       map[string]string `json:"metadata"`
	MetadataHeader string            `json:"metadata_header,omitempty"` // Upload-Metadata, unchanged
	Created        time.Time         `json:"created"`
	SubmittedAt    time.Time         `json:"submitted_at,omitzero"`
	Task           string            `json:"task,omitempty"`
	Existed        bool              `json:"existed,omitempty"`
	RequestIDTaken bool              `json:"request_id_taken,omitempty"`
	TaskEndedSince time.Time         `json:"task_gone_since,omitzero"`
}

// record is an upload as read from disk.
type record struct {
	Upload
	state      recordState
	offset     int64
	lastWrite  time.Time
	sourceName string // of the complete file; empty if it is incomplete
}

func (e *record) isComplete() bool { return e.sourceName != "" }

// hasAllBytes reports whether an incomplete upload needs only to be completed.
func (e *record) hasAllBytes() bool { return !e.isComplete() && e.offset == e.state.Length }

var idPattern = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// newID returns an id with 130 random bits.
func newID() string { return rand.Text() }

// load reads an upload of any principal.
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
	e.Size, e.Task, e.Existed = e.state.Length, e.state.Task, e.state.Existed
	return e, u.loadOffset(e)
}

func (u *Uploads) loadOffset(e *record) error {
	found, err := u.findSource(e)
	if found || err != nil {
		return err
	}
	info, err := u.root.Lstat(filepath.Join(e.ID, partFile))
	if errors.Is(err, fs.ErrNotExist) {
		// The upload was completed or deleted since findSource.
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
	if verified, ok := u.verifiedOffset(e.ID); ok {
		e.offset = min(e.offset, verified)
	}
	return nil
}

// findSource looks for the complete file.
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

// verifiedOffset returns how many bytes are verified, if a checksum is pending.
func (u *Uploads) verifiedOffset(id string) (offset int64, ok bool) {
	raw, err := u.root.ReadFile(filepath.Join(id, unverifiedFile))
	if err != nil {
		return 0, false
	}
	offset, _ = parseSize(string(raw)) // if it is invalid, no byte is verified
	return offset, true
}

// setVerifiedOffset records, durably, that later bytes are not verified.
func (u *Uploads) setVerifiedOffset(id string, offset int64) error {
	if err := u.replaceFile(id, unverifiedFile, []byte(strconv.FormatInt(offset, 10))); err != nil {
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

// openPart opens the received bytes for appending, and deletes unverified ones. The caller
// has locked the upload.
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

// createFiles creates the files of a new upload. The caller has locked it: otherwise
// CleanUp would treat it as a leftover of a crash. The state comes last, because it makes
// the directory an upload.
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
	if err == nil {
		err = u.replaceFile(e.ID, stateFile, raw)
	}
	if err != nil {
		return fmt.Errorf("write upload: %w", err)
	}
	return nil
}

// replaceFile writes a small file atomically and durably.
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

// deleteComplete deletes an upload, and what Options.Store made of it if it is complete. The caller
// has locked the upload.
func (u *Uploads) deleteComplete(ctx context.Context, e *record) error {
	if e.isComplete() {
		if err := u.options.Release(ctx, e.Upload); err != nil {
			return fmt.Errorf("release upload: %w", err)
		}
	}
	return u.deleteFiles(e.ID)
}

// deleteFiles deletes an upload, which the caller has locked. It deletes the state first:
// after a crash the rest is an orphan, and cannot be resumed.
func (u *Uploads) deleteFiles(id string) error {
	err := u.root.Remove(filepath.Join(id, stateFile))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = u.root.RemoveAll(id)
	}
	if err != nil {
		return fmt.Errorf("delete upload: %w", err)
	}
	return nil
}

// ids returns the names of the uploads' directories, including orphans.
func (u *Uploads) ids() ([]string, error) {
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
	return ids, nil
}

// unfinished returns the incomplete uploads.
func (u *Uploads) unfinished(ctx context.Context) ([]*record, error) {
	ids, err := u.ids()
	if err != nil {
		return nil, err
	}
	var all []*record
	for _, id := range ids {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// Most uploads are complete, and need not be read.
		if _, err := u.root.Lstat(filepath.Join(id, partFile)); err != nil {
			continue
		}
		e, err := u.load(id)
		if errors.Is(err, errNotFound) {
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
