package media

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/media/sandbox"
)

// Sandbox says how far ffmpeg and ffprobe are confined.
type Sandbox string

const (
	// SandboxAuto applies every restriction that this host supports.
	SandboxAuto Sandbox = ""
	// SandboxRequire runs nothing if the host lacks a restriction: every call
	// then returns [ErrSandbox].
	SandboxRequire Sandbox = "require"
	// SandboxOff is for programs in ffmpeg's place that need a network or other
	// directories.
	SandboxOff Sandbox = "off"
)

// DefaultUser is the user and group id that ffmpeg runs as if this process is
// root. Neither distributions nor systemd assign ids in its range, and no other
// program uses it.
const DefaultUser = 60817

const (
	// oomScore makes the kernel, short of memory, kill a child before the daemon
	// or the database.
	oomScore = 500
	// maxFileSize is far above every output file: segments last six seconds, and
	// the frame lists of a week are smaller.
	maxFileSize = 4 << 30
	// maxOpenFiles is what most systems allow a program by default.
	maxOpenFiles = 1024
)

// sandboxGrant is what a confined child was given until release.
type sandboxGrant struct {
	source  *os.File // the source's directory
	dir     string   // the child's directory
	chowned bool     // dir belongs to the child's user
	url     string   // the source as the child sees it
	input   *inputServer
}

// applySandbox makes a command run confined. The caller releases the grant after
// the child has ended.
func (t Tools) applySandbox(ctx context.Context, cmd *exec.Cmd, c command) (*sandboxGrant, error) {
	k := &sandboxGrant{}
	served := t.Source != nil && c.source == t.Source.Path
	if served {
		c.source = "" // there is no such file
	}
	if t.Sandbox == SandboxOff {
		if served {
			var err error
			k.input, k.url, err = t.serveInput(cmd, nil)
			return k, err
		}
		return k, nil
	}
	p := sandbox.Policy{
		ReadOnly: t.readOnlyPaths(cmd.Path), Nice: min(t.Nice, 19), OOMScore: oomScore,
		FileSize: maxFileSize, Memory: t.addressSpace(), CPU: maxCPUSeconds(ctx), Tasks: maxTasks(),
		OpenFiles: maxOpenFiles,
		Require:   t.Sandbox == SandboxRequire,
	}
	if c.source != "" {
		p.ReadOnly = append(p.ReadOnly, c.source)
	}
	if c.dir != "" {
		p.ReadWrite = []string{c.dir}
	}
	c.device.allow(&p)
	if user := t.sandboxUser(); sandbox.CanChangeUser(user) {
		switch err := k.grantAccess(cmd, c, user); {
		case err == nil:
			p.User = user
		case p.Require:
			k.revokeAccess()
			return nil, errors.Join(fmt.Errorf("%w: %w", ErrSandbox, err), k.release())
		default:
			// Keep root's access to files, and apply all other restrictions.
			k.revokeAccess()
			p.KeepCapabilities = true
		}
	}
	if served {
		var err error
		if k.input, k.url, err = t.serveInput(cmd, &p); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: %w", ErrSandbox, err), k.release())
		}
	}
	if err := p.Wrap(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrSandbox, err), k.release())
	}
	return k, nil
}

func (t Tools) sandboxUser() int {
	if t.User > 0 {
		return t.User
	}
	return DefaultUser
}

// readOnlyPaths lists what a program outside the system's directories needs: itself
// and the libraries installed with it.
func (t Tools) readOnlyPaths(program string) []string {
	list := append([]string{}, t.Readable...)
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
		list = append(list, real)
	}
	around := filepath.Dir(filepath.Dir(program))
	candidates := append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")),
		filepath.Join(around, "lib"), filepath.Join(around, "lib64"))
	for _, dir := range candidates {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && filepath.IsAbs(dir) && dir != "/" {
			list = append(list, dir)
		}
	}
	return list
}

// addressSpace limits the child's virtual memory: twice the memory limit, because
// much is never touched, and a gigabyte per processor for the stacks and heaps of
// threads.
func (t Tools) addressSpace() uint64 {
	limit := t.MemoryLimit()
	if limit <= 0 {
		return 0
	}
	return 2*uint64(limit) + uint64(runtime.NumCPU())<<30
}

// maxCPUSeconds is the processor time that fits into the time left for the call.
func maxCPUSeconds(ctx context.Context) uint64 {
	end, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return uint64(max(time.Until(end), 0)/time.Second+60) * uint64(runtime.NumCPU())
}

// maxTasks limits the processes and threads of the child's user. The kernel counts
// those of all its programs, so the limit is relative to the number on the whole
// host now: enough for the threads of some dozen encoders, but not for a program
// that keeps starting itself.
func maxTasks() uint64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 4 {
		return 0
	}
	_, total, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseUint(total, 10, 64)
	if err != nil {
		return 0
	}
	return n + 2048 + 128*uint64(runtime.NumCPU())
}

// grantAccess gives the child's user what it needs: it owns its directory while the
// child runs, and reaches the source through an open directory, because the
// directories above are closed to other users.
func (k *sandboxGrant) grantAccess(cmd *exec.Cmd, c command, user int) error {
	k.dir = c.dir
	if c.source != "" {
		if err := k.openSource(cmd, c.source); err != nil {
			return err
		}
	}
	if c.dir == "" {
		return nil
	}
	k.chowned = true
	return chownTree(c.dir, user)
}

// revokeAccess undoes a failed grantAccess: a network file server, or a file system
// without owners, may not permit changing owners. Errors are ignored, because root
// can access the files anyway.
func (k *sandboxGrant) revokeAccess() {
	if k.chowned {
		k.chowned = false
		_ = walkTree(k.dir, func(root *os.Root, path string, _ fs.DirEntry) error {
			_ = root.Lchown(path, os.Geteuid(), os.Geteuid())
			return nil
		})
	}
}

// firstExtraFD is the number of the first extra open file of a child.
const firstExtraFD = 3

func (k *sandboxGrant) openSource(cmd *exec.Cmd, source string) error {
	dir, err := os.Open(filepath.Dir(source))
	if err != nil {
		return err
	}
	k.source = dir
	above, err := dir.Stat()
	if err != nil {
		return err
	}
	file, err := os.Stat(source)
	if err != nil {
		return err
	}
	if above.Mode()&0o001 == 0 || file.Mode()&0o004 == 0 {
		return fmt.Errorf("%w: %w", ErrSourceNotReadable, fs.ErrPermission)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, dir)
	k.url = fmt.Sprintf("file:/proc/self/fd/%d/%s", firstExtraFD+len(cmd.ExtraFiles)-1, filepath.Base(source))
	for i, arg := range cmd.Args {
		switch arg {
		case "file:" + source:
			cmd.Args[i] = k.url
		case source: // a program other than ffmpeg knows no "file:"
			cmd.Args[i] = strings.TrimPrefix(k.url, "file:")
		}
	}
	return nil
}

// release takes back what the child was given. The child's directory must contain
// only plain files: ffmpeg makes nothing else, and a link could mislead those who
// read or publish the output.
func (k *sandboxGrant) release() error {
	if k.input != nil {
		k.input.close()
	}
	if k.source != nil {
		k.source.Close()
		k.source = nil
	}
	if k.dir == "" {
		return nil
	}
	dir, lent := k.dir, k.chowned
	k.dir, k.chowned = "", false
	return walkTree(dir, func(root *os.Root, path string, entry fs.DirEntry) error {
		info, err := entry.Info()
		if err == nil {
			err = checkPlainFile(path, info)
		}
		if err != nil || !lent {
			return err
		}
		return root.Lchown(path, os.Geteuid(), os.Geteuid())
	})
}

func checkPlainFile(path string, info fs.FileInfo) error {
	if info.IsDir() || info.Mode().IsRegular() && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the child created %q with mode %v", ErrMismatch, path, info.Mode())
}

// chownTree changes the owner and group of a directory and its content.
func chownTree(dir string, user int) error {
	return walkTree(dir, func(root *os.Root, path string, _ fs.DirEntry) error { return root.Lchown(path, user, user) })
}

// walkTree calls do for a directory and its content. It follows no links.
func walkTree(dir string, do func(root *os.Root, path string, entry fs.DirEntry) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return do(root, path, entry)
	})
}
