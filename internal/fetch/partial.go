package fetch

import (
	"crypto/rand"
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
)

// partial is a download on its way to disk.
//
// The file may outlive the process. What may be trusted of it is in the state
// beside it, which is written only after the bytes it vouches for are synced.
// A lock keeps two downloads from writing to one file; it goes with the
// process, so a crash leaves nothing behind that must be cleared by hand.
type partial struct {
	f     *os.File
	path  string
	kept  bool // survives a failed attempt
	done  int64
	state partialState
}

// partialState tells whether the rest of a file can be asked for.
type partialState struct {
	Source       string `json:"source"` // hash of the URL: it may hold secrets
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
	Total        int64  `json:"total"` // negative: not known
	Bytes        int64  `json:"bytes"` // of the file, that are synced
}

// validator is what If-Range is given. None, and the download starts over.
func (s partialState) validator() string {
	if s.ETag != "" {
		return s.ETag
	}
	return s.LastModified
}

// openPartial opens the file a download of u goes to, at the place where an
// earlier one ended.
func openPartial(u *url.URL, dst string, o Options) (*partial, error) {
	p := &partial{path: o.Partial, kept: o.Partial != ""}
	if p.kept {
		f, err := openLocked(p.path)
		if err != nil {
			return nil, destinationError(filepath.Dir(p.path), err)
		}
		p.f, p.kept = f, f != nil
	}
	if !p.kept {
		p.path = filepath.Join(filepath.Dir(dst), ".fetch-"+rand.Text())
		f, err := os.OpenFile(p.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
		if err != nil {
			return nil, destinationError(filepath.Dir(dst), err)
		}
		p.f = f
	}
	hash := sha256.Sum256([]byte(u.String()))
	source := hex.EncodeToString(hash[:])
	if p.kept {
		p.restore(source)
	}
	if err := p.truncate(p.done); err != nil {
		p.close(false)
		return nil, err
	}
	p.state.Source = source
	return p, nil
}

// openLocked opens path for this process alone. It returns nil if somebody
// else has it.
func openLocked(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, fileMode)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			f.Close()
			return nil, nil
		}
		// Between opening and locking, its owner may have finished and moved
		// it away: then the lock is on somebody's finished file.
		mine, err := f.Stat()
		if err == nil {
			var named fs.FileInfo
			named, err = os.Lstat(path)
			if err == nil && os.SameFile(mine, named) {
				return f, nil
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// restore takes up the state of an earlier download of the same source.
// Whatever is wrong with it, the answer is to begin at the beginning.
func (p *partial) restore(source string) {
	raw, err := os.ReadFile(p.statePath())
	if err != nil {
		return
	}
	var s partialState
	if json.Unmarshal(raw, &s) != nil || s.Source != source || s.validator() == "" || s.Bytes <= 0 {
		return
	}
	info, err := p.f.Stat()
	if err != nil || info.Size() < s.Bytes || (s.Total > 0 && s.Bytes > s.Total) {
		return
	}
	p.state, p.done = s, s.Bytes
	if p.done == s.Total {
		// Everything came, but nobody used it. Asking for the last byte again
		// is the way to learn whether it is still the same file.
		p.done--
	}
}

// begin starts a new file, described by the server's answer.
func (p *partial) begin(resp *http.Response) error {
	p.state = partialState{Source: p.state.Source, Total: resp.ContentLength}
	if tag := resp.Header.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		p.state.ETag = tag
	} else if tag == "" {
		p.state.LastModified = strongDate(resp.Header)
	}
	p.done = 0
	os.Remove(p.statePath())
	return p.truncate(0)
}

// strongDate is Last-Modified where it can tell two versions apart: not if the
// file may have changed again within the same second.
func strongDate(h http.Header) string {
	modified, err1 := http.ParseTime(h.Get("Last-Modified"))
	now, err2 := http.ParseTime(h.Get("Date"))
	if err1 != nil || err2 != nil || now.Sub(modified) < time.Minute {
		return ""
	}
	return h.Get("Last-Modified")
}

func (p *partial) truncate(n int64) error {
	if err := p.f.Truncate(n); err != nil {
		return destinationError(filepath.Dir(p.path), err)
	}
	if _, err := p.f.Seek(n, io.SeekStart); err != nil {
		return destinationError(filepath.Dir(p.path), err)
	}
	return nil
}

func (p *partial) write(b []byte) error {
	n, err := p.f.Write(b)
	p.done += int64(n)
	if err != nil {
		return destinationError(filepath.Dir(p.path), err)
	}
	return nil
}

// checkpoint puts what has come so far on disk and makes it count, where that
// is possible, if the process ends here.
func (p *partial) checkpoint() error {
	dir := filepath.Dir(p.path)
	if err := p.f.Sync(); err != nil {
		return destinationError(dir, err)
	}
	if !p.kept || p.state.validator() == "" {
		return nil
	}
	p.state.Bytes = p.done
	raw, err := json.Marshal(p.state)
	if err != nil {
		return err
	}
	tmp := p.statePath() + ".tmp"
	defer os.Remove(tmp) // of no effect once it has been renamed
	if err := os.WriteFile(tmp, raw, fileMode); err != nil {
		return destinationError(dir, err)
	}
	if err := os.Rename(tmp, p.statePath()); err != nil {
		return destinationError(dir, err)
	}
	return nil
}

// finish moves the complete file to dst.
func (p *partial) finish(dst string) error {
	if err := p.f.Sync(); err != nil {
		return destinationError(filepath.Dir(p.path), err)
	}
	if p.kept {
		os.Remove(p.statePath())
	}
	return moveInPlace(p.path, dst)
}

// close ends the work on the file. With keep, the next call goes on from here.
func (p *partial) close(keep bool) {
	if !keep || !p.kept || p.state.validator() == "" || p.checkpoint() != nil {
		if p.kept {
			os.Remove(p.statePath())
		}
		os.Remove(p.path)
	}
	p.f.Close()
}

func (p *partial) statePath() string { return p.path + ".json" }
