package media

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
)

const (
	tailBytes   = 4096
	lineBytes   = 512
	pendingSize = 8192
)

// stderrTail keeps the last lines a child wrote, counts the complaints among
// them and notices a disk that is full or read-only, which ffmpeg may report
// and yet end with 0.
type stderrTail struct {
	source     string
	sandboxURL string // the source's address, as a confined child sees it
	pending    []byte
	lines      []string
	size       int
	errors     int64
	diskError  error // with the disk
}

func (s *stderrTail) Write(b []byte) (int, error) {
	for _, c := range b {
		if c == '\n' || c == '\r' {
			s.flush()
			continue
		}
		if len(s.pending) < pendingSize {
			s.pending = append(s.pending, c)
		}
	}
	return len(b), nil
}

func (s *stderrTail) report() stderrReport {
	s.flush()
	return stderrReport{tail: strings.Join(s.lines, "\n"), errors: s.errors}
}

var (
	// pointerAddress is how ffmpeg tells two decoders apart; it differs in each run.
	pointerAddress = regexp.MustCompile(` @ 0x[0-9a-f]+`)
	levelTag       = regexp.MustCompile(`\[(error|fatal|panic)\] `)
)

// diskMessages are the C library's words for ENOSPC, EDQUOT, EFBIG and EROFS.
var diskMessages = map[string]error{
	"No space left on device": ErrNoSpace,
	"Disk quota exceeded":     ErrNoSpace,
	"quota exceeded":          ErrNoSpace,
	"File too large":          fmt.Errorf("%w: %w", ErrNoSpace, syscall.EFBIG),
	"Read-only file system":   syscall.EROFS,
}

// minFree is how much room a disk must have for users without privileges, or else
// it counts as full: a child's file did not fit, and others may have gone since.
const minFree = 2 << 20

// isDiskErrorConfirmed asks the disk whether it is in the trouble that a child spoke of: decoders
// have the same words for buffers of their own. A child without a folder writes nothing.
// That a file is too large cannot be seen from a small one. Writing alone does not tell
// where this process is root and the child is not: ext4 keeps room for root.
func isDiskErrorConfirmed(dir string, trouble error) bool {
	if dir == "" {
		return false
	}
	if errors.Is(trouble, ErrNoSpace) && isFullForUnprivileged(dir) {
		return true
	}
	f, err := os.CreateTemp(dir, ".space-*")
	if err != nil {
		return true
	}
	_, err = f.Write(make([]byte, 1<<20))
	err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
	return err != nil || errors.Is(trouble, syscall.EFBIG)
}

// isFullForUnprivileged reports whether users without privileges have next to no room left.
// A disk that cannot say how large it is, is not full.
func isFullForUnprivileged(dir string) bool {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || st.Blocks == 0 {
		return false
	}
	return int64(st.Bavail)*int64(st.Bsize) < minFree
}

// preferDiskError keeps from being held against the source what the disk may have done: the
// child told of trouble with it, which could not be confirmed afterwards. Others may
// have made room meanwhile, or the child's account has a quota.
func (s stderrReport) preferDiskError(err error) error {
	refused := (*RejectedError)(nil)
	if s.diskError == nil || !errors.As(err, &refused) && !errors.Is(err, ErrNoPicture) {
		return err
	}
	return fmt.Errorf("the disk may be to blame, not the source: ffmpeg said of it: %v; then: %v", s.diskError, err)
}

func (s *stderrTail) flush() {
	if len(s.pending) == 0 {
		return
	}
	line := s.cleanLine(string(s.pending))
	s.pending = s.pending[:0]
	if levelTag.MatchString(line) {
		s.errors++
		line = levelTag.ReplaceAllString(line, "")
	}
	for text, err := range diskMessages {
		if strings.Contains(line, text) {
			s.diskError = err
		}
	}
	s.lines = append(s.lines, line)
	s.size += len(line) + 1
	for s.size > tailBytes && len(s.lines) > 1 {
		s.size -= len(s.lines[0]) + 1
		s.lines = s.lines[1:]
	}
}

// cleanLine makes a line fit for a database and for a person's eyes.
func (s *stderrTail) cleanLine(line string) string {
	if s.sandboxURL != "" {
		line = strings.ReplaceAll(line, s.sandboxURL, "source")
		line = strings.ReplaceAll(line, strings.TrimPrefix(s.sandboxURL, "file:"), "source")
	}
	if s.source != "" {
		line = strings.ReplaceAll(line, "file:"+s.source, "source")
		line = strings.ReplaceAll(line, s.source, "source")
	}
	line = pointerAddress.ReplaceAllString(line, "")
	line = strings.ToValidUTF8(line, "\uFFFD")
	line = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, line)
	if len(line) > lineBytes {
		line = strings.ToValidUTF8(line[:lineBytes], "") + "…"
	}
	return line
}
