package media

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/cuelight/cuelight/internal/diskspace"
)

const (
	tailBytes   = 4096
	lineBytes   = 512
	pendingSize = 8192
	// minFree is the space below which a disk counts as full for unprivileged
	// users: a child's file did not fit, but others may have been removed since.
	minFree = 2 << 20
)

// stderrTail keeps the last lines of a child, counts its error messages, and
// detects a full or read-only disk, after which ffmpeg may still exit with 0.
type stderrTail struct {
	source     string
	sandboxURL string // the source's URL inside the sandbox
	pending    []byte
	lines      []string
	size       int
	errors     int64
	diskError  error
}

// Write splits the output into lines. It never returns an error.
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
	// pointerAddress is how ffmpeg distinguishes two decoders; it differs in
	// each run.
	pointerAddress = regexp.MustCompile(` @ 0x[0-9a-f]+`)
	levelTag       = regexp.MustCompile(`\[(error|fatal|panic)\] `)
	// hardwareMessage is a message of a hardware encoder, which is not about the
	// source.
	hardwareMessage = regexp.MustCompile(`^\[(h264_(nvenc|qsv|vaapi)|AVHW\w+)\] `)
)

// diskMessages are the C library's messages for ENOSPC, EDQUOT, EFBIG and EROFS.
var diskMessages = map[string]error{
	"No space left on device": ErrNoSpace,
	"Disk quota exceeded":     ErrNoSpace,
	"quota exceeded":          ErrNoSpace,
	"File too large":          fmt.Errorf("%w: %w", ErrNoSpace, syscall.EFBIG),
	"Read-only file system":   syscall.EROFS,
}

func (s *stderrTail) flush() {
	if len(s.pending) == 0 {
		return
	}
	line := s.cleanLine(string(s.pending))
	s.pending = s.pending[:0]
	if levelTag.MatchString(line) {
		if !hardwareMessage.MatchString(line) {
			s.errors++
		}
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

// cleanLine replaces the source's path, and makes a line safe for databases and
// terminals.
func (s *stderrTail) cleanLine(line string) string {
	for _, name := range []string{s.sandboxURL, strings.TrimPrefix(s.sandboxURL, "file:"), "file:" + s.source, s.source} {
		if name != "" && name != "file:" {
			line = strings.ReplaceAll(line, name, "source")
		}
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

// isDiskErrorConfirmed checks whether the disk has the error that a child
// reported: decoders use the same messages for their buffers. EFBIG cannot be
// reproduced with a small file. A test write is not enough if this process is root
// and the child is not, because ext4 reserves space for root.
func isDiskErrorConfirmed(dir string, diskErr error) bool {
	if errors.Is(diskErr, ErrNoSpace) && isFullForUnprivileged(dir) {
		return true
	}
	f, err := os.CreateTemp(dir, ".space-*")
	if err != nil {
		return true
	}
	_, err = f.Write(make([]byte, 1<<20))
	err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
	return err != nil || errors.Is(diskErr, syscall.EFBIG)
}

// isFullForUnprivileged reports whether unprivileged users have almost no space
// left. A disk that reports no size is not full.
func isFullForUnprivileged(dir string) bool {
	free, size, err := diskspace.Free(dir)
	return err == nil && size > 0 && free < minFree
}

// preferDiskError keeps a source from being rejected for an error that the disk
// may have caused: the child reported a disk error that could not be confirmed
// afterwards. Space may have been freed since, or the child's user has a quota.
func (s stderrReport) preferDiskError(err error) error {
	rejected := (*RejectedError)(nil)
	if s.diskError == nil || !errors.As(err, &rejected) && !errors.Is(err, ErrNoPicture) {
		return err
	}
	return fmt.Errorf("the disk may have failed, not the source: ffmpeg reported %q; then: %v", s.diskError, err)
}
