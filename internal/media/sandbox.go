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
	// SandboxAuto takes away whatever this host allows to take away.
	SandboxAuto Sandbox = ""
	// SandboxRequire runs nothing where a layer of the confinement is not to be
	// had: then every call ends with [ErrSandbox].
	SandboxRequire Sandbox = "require"
	// SandboxOff is for programs in ffmpeg's place that need more than ffmpeg: a
	// network, other directories.
	SandboxOff Sandbox = "off"
)

// DefaultUser is the number of the user and the group that ffmpeg runs as where
// this process is root. It is of a range that neither distributions nor systemd
// give away, and, other than nobody's, no other program's.
const DefaultUser = 60817

const (
	// oomScore makes the kernel, short of memory, take a child and not the daemon
	// or the database.
	oomScore = 500
	// maxFileSize is far above what any child writes into one file: segments last
	// six seconds, and the lists of frames of a week stay below.
	maxFileSize = 4 << 30
)

// sandboxGrant is what a confined child was given, until it is taken back.
type sandboxGrant struct {
	source  *os.File // the directory of the source
	dir     string   // the child's own
	chowned bool     // the directory belongs to the child meanwhile
	url     string   // of the source, as the child sees it
}

// applySandbox makes a command run confined. The caller releases what it returns when
// the child has ended.
func (t Tools) applySandbox(ctx context.Context, cmd *exec.Cmd, c command) (*sandboxGrant, error) {
	k := &sandboxGrant{}
	if t.Sandbox == SandboxOff {
		return k, nil
	}
	p := sandbox.Policy{
		ReadOnly: t.readOnlyPaths(cmd.Path), Nice: min(t.Nice, 19), OOMScore: oomScore,
		FileSize: maxFileSize, Memory: t.addressSpace(), CPU: maxCPUSeconds(ctx), Tasks: maxTasks(), Require: t.Sandbox == SandboxRequire,
	}
	if c.source != "" {
		p.ReadOnly = append(p.ReadOnly, c.source)
	}
	if c.dir != "" {
		p.ReadWrite = []string{c.dir}
	}
	if user := t.sandboxUser(); sandbox.CanChangeUser(user) {
		switch err := k.grantAccess(cmd, c, user); {
		case err == nil:
			p.User = user
		case p.Require:
			k.revokeAccess()
			return nil, errors.Join(fmt.Errorf("%w: %w", ErrSandbox, err), k.release())
		default:
			// It cannot be had without the rights of root, but with all else.
			k.revokeAccess()
			p.KeepCapabilities = true
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

// readOnlyPaths are the files that a program outside of the system's directories needs
// beside itself: the libraries that came with it.
func (t Tools) readOnlyPaths(program string) []string {
	list := append([]string{}, t.Readable...)
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
		list = append(list, real)
	}
	around := filepath.Dir(filepath.Dir(program))
	candidates := append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), filepath.Join(around, "lib"), filepath.Join(around, "lib64"))
	for _, dir := range candidates {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && filepath.IsAbs(dir) && dir != "/" {
			list = append(list, dir)
		}
	}
	return list
}

// addressSpace bounds what the kernel gives a child at all, beside the memory that
// is watched: as much again for what is never touched, and a gigabyte per
// processor for the stacks and heaps of threads.
func (t Tools) addressSpace() uint64 {
	most := t.MemoryLimit()
	if most <= 0 {
		return 0
	}
	return 2*uint64(most) + uint64(runtime.NumCPU())<<30
}

// maxCPUSeconds is the processor time, in seconds, that fits into the time a call has.
func maxCPUSeconds(ctx context.Context) uint64 {
	end, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return uint64(max(time.Until(end), 0)/time.Second+60) * uint64(runtime.NumCPU())
}

// maxTasks is how many processes and threads the child's user may have. They are
// counted for all of the user's programs, so it is so many more than the whole host
// has now: enough for the threads of some dozen encoders, and an end for a program
// that starts itself over and over.
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

// grantAccess lets another user have what the child needs: its directory becomes the
// user's for as long as the child runs, and the source is reached by way of an open
// directory, since those above it are closed to others.
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

// revokeAccess takes back what a hand-over that failed has changed: a network's server, or a
// file system without owners, lets nobody give files away. Most likely nothing was
// changed then; what cannot be taken back, root reads and writes all the same.
func (k *sandboxGrant) revokeAccess() {
	if k.chowned {
		k.chowned = false
		_ = walkTree(k.dir, func(root *os.Root, path string, _ fs.DirEntry) error {
			_ = root.Lchown(path, os.Geteuid(), os.Geteuid())
			return nil
		})
	}
}

// firstExtraFD is the number of a child's first open file after the usual three.
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
		if arg == "file:"+source {
			cmd.Args[i] = k.url
		}
	}
	return nil
}

// release takes back what the child was given. Its output must be plain files:
// anything else is nothing that ffmpeg makes, and would lead those who read or
// publish it astray.
func (k *sandboxGrant) release() error {
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
	return fmt.Errorf("%w: it left %q, which is %v", ErrMismatch, path, info.Mode())
}

// chownTree gives a directory and all that is in it to a user and the group of the
// same number.
func chownTree(dir string, user int) error {
	return walkTree(dir, func(root *os.Root, path string, _ fs.DirEntry) error { return root.Lchown(path, user, user) })
}

// walkTree calls do for a directory and all that is in it. It follows no links.
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
