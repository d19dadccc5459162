package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/flock"
)

// partialFile is the file of an unfinished download.
//
// It can outlive the process. A second file holds its state, which is written only after
// the bytes that it counts are synced. A lock prevents two downloads from writing to one
// file. The lock ends with the process, so a crash leaves nothing to clean up.
type partialFile struct {
	file     *os.File
	path     string
	isKept   bool // for the next call
	received int64
	state    partialState
}

// partialState is what a download needs to be resumed.
type partialState struct {
	Source       string `json:"source"` // a hash, because the URL may contain secrets
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
	Total        int64  `json:"total"` // negative if unknown
	Bytes        int64  `json:"bytes"` // synced
}

// validator returns the value of If-Range. Without one, a download cannot be resumed.
func (s partialState) validator() string {
	if s.ETag != "" {
		return s.ETag
	}
	return s.LastModified
}

// openPartial opens the file for a download of u, positioned where an earlier one ended.
func openPartial(u *url.URL, dst string, o Options) (*partialFile, error) {
	p := &partialFile{path: o.Partial}
	var err error
	if o.Partial != "" {
		p.file, err = openLocked(p.path)
		p.isKept = p.file != nil
	}
	if err == nil && !p.isKept {
		p.path = temporaryPath(dst)
		p.file, err = os.OpenFile(p.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	}
	if err != nil {
		return nil, p.writeError(err)
	}
	hash := sha256.Sum256([]byte(u.String()))
	source := hex.EncodeToString(hash[:])
	if p.isKept {
		p.restore(source)
	}
	if err := p.truncate(p.received); err != nil {
		p.close(false)
		return nil, err
	}
	p.state.Source = source
	return p, nil
}

// openLocked opens and locks path. It returns nil if another call has the lock.
func openLocked(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, fileMode)
		if err != nil {
			return nil, err
		}
		if locked, _ := flock.TryLock(f, flock.Exclusive); !locked {
			f.Close()
			return nil, nil
		}
		// Between open and lock, another call may have finished the download and
		// renamed the file. Then the lock is on that call's destination.
		locked, err := f.Stat()
		if err == nil {
			var named fs.FileInfo
			named, err = os.Lstat(path)
			if err == nil && os.SameFile(locked, named) {
				return f, nil
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// restore reads the state of an earlier download of the same source. If the state is
// missing or invalid, the download starts from the beginning.
func (p *partialFile) restore(source string) {
	raw, err := os.ReadFile(p.statePath())
	if err != nil {
		return
	}
	var s partialState
	if json.Unmarshal(raw, &s) != nil || s.Source != source || s.validator() == "" || s.Bytes <= 0 {
		return
	}
	info, err := p.file.Stat()
	if err != nil || info.Size() < s.Bytes || (s.Total > 0 && s.Bytes > s.Total) {
		return
	}
	p.state, p.received = s, s.Bytes
	if p.received == s.Total {
		// The file is complete. A request for its last byte checks that it is
		// still the same file on the server.
		p.received--
	}
}

// begin truncates the file and takes its state from the response.
func (p *partialFile) begin(resp *http.Response) error {
	p.state = partialState{Source: p.state.Source, Total: resp.ContentLength}
	if tag := resp.Header.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		p.state.ETag = tag
	} else if tag == "" {
		p.state.LastModified = strongDate(resp.Header)
	}
	p.received = 0
	os.Remove(p.statePath())
	return p.truncate(0)
}

// strongDate returns Last-Modified if it is a strong validator (RFC 9110, 8.8.2.2): not
// if the file may have changed twice within the same second.
func strongDate(h http.Header) string {
	modified, err1 := http.ParseTime(h.Get("Last-Modified"))
	now, err2 := http.ParseTime(h.Get("Date"))
	if err1 != nil || err2 != nil || now.Sub(modified) < time.Minute {
		return ""
	}
	return h.Get("Last-Modified")
}

func (p *partialFile) truncate(n int64) error {
	if err := p.file.Truncate(n); err != nil {
		return p.writeError(err)
	}
	_, err := p.file.Seek(n, io.SeekStart)
	return p.writeError(err)
}

func (p *partialFile) write(b []byte) error {
	n, err := p.file.Write(b)
	p.received += int64(n)
	return p.writeError(err)
}

// checkpoint syncs the file and saves its state, so that the download can be resumed
// after a crash.
func (p *partialFile) checkpoint() error {
	if err := p.file.Sync(); err != nil {
		return p.writeError(err)
	}
	if !p.isKept || p.state.validator() == "" {
		return nil
	}
	p.state.Bytes = p.received
	raw, err := json.Marshal(p.state)
	if err != nil {
		return err
	}
	tmp := p.statePath() + ".tmp"
	defer os.Remove(tmp) // does nothing after the rename
	if err := os.WriteFile(tmp, raw, fileMode); err != nil {
		return p.writeError(err)
	}
	return p.writeError(os.Rename(tmp, p.statePath()))
}

// finish renames the complete file to dst.
func (p *partialFile) finish(dst string) error {
	if err := p.file.Sync(); err != nil {
		return p.writeError(err)
	}
	if p.isKept {
		os.Remove(p.statePath())
	}
	return renameAndSync(p.path, dst)
}

// close closes an unfinished file. If keep is true and the download can be resumed, it
// saves the state; otherwise it deletes the file.
func (p *partialFile) close(keep bool) {
	if !keep || !p.isKept || p.state.validator() == "" || p.checkpoint() != nil {
		if p.isKept {
			os.Remove(p.statePath())
		}
		os.Remove(p.path)
	}
	p.file.Close()
}

func (p *partialFile) statePath() string { return p.path + ".json" }

func (p *partialFile) writeError(err error) error { return destinationError(filepath.Dir(p.path), err) }
