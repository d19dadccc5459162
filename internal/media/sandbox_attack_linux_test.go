package media

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cuelight/cuelight/internal/media/sandbox"
	"golang.org/x/sys/unix"
)

// attackArg makes the test binary run in place of ffmpeg and try everything that a
// compromised decoder could try.
const attackArg = "attack"

func init() {
	if len(os.Args) == 3 && os.Args[1] == attackArg {
		var a attack
		if err := json.Unmarshal([]byte(os.Args[2]), &a); err != nil {
			panic(err)
		}
		ossignal.Ignore(unix.SIGXFSZ)
		_ = json.NewEncoder(os.Stdout).Encode(a.run())
		os.Exit(0)
	}
}

// attack lists the targets.
type attack struct {
	Parent                                int
	Nice                                  uintptr // the parent's
	Secret, Readable, Writable, Directory string  // outside the child's directory
	Unix, TCP                             string
	Source, Program                       string
	Own                                   string // the child's directory
}

// run returns the error of each attempt; "" means that it succeeded.
func (a attack) run() map[string]string {
	proc := fmt.Sprintf("/proc/%d/", a.Parent)
	first := func(file string) error {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	}
	call := func(number uintptr, args ...uintptr) error {
		args = append(args, 0, 0, 0, 0, 0, 0)
		_, _, errno := unix.Syscall6(number, args[0], args[1], args[2], args[3], args[4], args[5])
		if errno != 0 {
			return errno
		}
		return nil
	}
	parent := uintptr(a.Parent)
	tries := map[string]func() error{
		"own: read the source":     func() error { return first(a.Source) },
		"own: write":               func() error { return os.WriteFile(filepath.Join(a.Own, "own"), []byte("x"), 0o644) },
		"own: use the null device": func() error { return os.WriteFile("/dev/null", []byte("x"), 0) },
		"own: run a program":       func() error { return exec.Command("/bin/true").Run() },

		"read the admin's secret":       func() error { return first(a.Secret) },
		"read another's readable file":  func() error { return first(a.Readable) },
		"read the accounts":             func() error { return first("/etc/passwd") },
		"list another directory":        func() error { _, err := os.ReadDir(a.Directory); return err },
		"read the parent's environment": func() error { return first(proc + "environ") },
		"read the parent's memory map":  func() error { return first(proc + "maps") },
		"open the parent's memory": func() error {
			f, err := os.OpenFile(proc+"mem", os.O_RDWR, 0)
			f.Close()
			return err
		},
		"list the parent's files": func() error { _, err := os.ReadDir(proc + "fd"); return err },
		"write another's writable file": func() error {
			f, err := os.OpenFile(a.Writable, os.O_WRONLY, 0)
			f.Close()
			return err
		},
		"make a file elsewhere": func() error {
			return os.WriteFile(filepath.Join(a.Directory, "mine"), nil, 0o644)
		},
		"make a link for others":   func() error { return os.Symlink(a.Secret, filepath.Join(a.Own, "link")) },
		"make a pipe for others":   func() error { return unix.Mkfifo(filepath.Join(a.Own, "pipe"), 0o644) },
		"connect to a Unix socket": func() error { return dial("unix", a.Unix) },
		"connect over TCP":         func() error { return dial("tcp", a.TCP) },
		"listen": func() error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			closeIf(l, err)
			return err
		},
		"open a UDP socket":             func() error { return call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM) },
		"open a netlink socket":         func() error { return call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW) },
		"trace the parent":              func() error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, parent) },
		"read the parent's memory":      func() error { return readMemory(a.Parent) },
		"get hold of the parent":        func() error { return call(unix.SYS_PIDFD_OPEN, parent) },
		"signal the parent":             func() error { return unix.Kill(a.Parent, 0) },
		"queue a signal for the parent": func() error { return call(unix.SYS_RT_SIGQUEUEINFO, parent, 0, queued()) },
		"queue one for a parent's thread": func() error {
			return call(unix.SYS_RT_TGSIGQUEUEINFO, parent, parent, 0, queued())
		},
		"change the parent's priority": func() error {
			return call(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, parent, a.Nice)
		},
		"change the parent's IO priority": func() error { return call(unix.SYS_IOPRIO_SET, 1, parent, 0) },
		"change the parent's limits": func() error {
			return unix.Prlimit(a.Parent, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
		},
		"become root":                     func() error { return becomeRoot() },
		"have capabilities":               hasCapabilities,
		"leave the process group":         func() error { return call(unix.SYS_SETPGID) },
		"leave the session":               func() error { return call(unix.SYS_SETSID) },
		"make a user namespace":           func() error { return call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER) },
		"mount":                           func() error { return a.mount() },
		"load a BPF program":              func() error { return call(unix.SYS_BPF, 0, 0, 0) },
		"make a ring for asynchronous IO": func() error { return ring() },
		"watch page faults":               func() error { return call(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1) },
		"measure with performance counters": func() error {
			attr := unix.PerfEventAttr{
				Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: unix.PERF_ATTR_SIZE_VER0,
				Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
			}
			_, err := unix.PerfEventOpen(&attr, 0, -1, -1, 0)
			return err
		},
		"read the key ring": func() error {
			_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)
			return err
		},
		"leave shared memory":            func() error { return leave(unix.SYS_SHMGET, unix.SYS_SHMCTL, 4096, 0o600) },
		"leave a semaphore":              func() error { return leave(unix.SYS_SEMGET, unix.SYS_SEMCTL, 1, 0o600) },
		"leave a message queue":          func() error { return leave(unix.SYS_MSGGET, unix.SYS_MSGCTL, 0o600, 0) },
		"leave a POSIX message queue":    leaveQueue,
		"open files without an end":      openMany,
		"run a program that it wrote":    func() error { return a.runOwn() },
		"write a file without an end":    func() error { return os.Truncate(filepath.Join(a.Own, "own"), 1<<40) },
		"start processes without an end": func() error { return unlimited(unix.RLIMIT_NPROC) },
		"take memory without an end":     func() error { return unlimited(unix.RLIMIT_AS) },
		"dump core":                      func() error { return unlimited(unix.RLIMIT_CORE) },
		"see more of the environment":    seesMore,
	}
	names := []string{}
	for name := range tries {
		names = append(names, name)
	}
	slices.Sort(names) // "own" comes first; becoming root must come before the rest
	results := map[string]string{}
	for _, name := range names {
		results[name] = ""
		if err := tries[name](); err != nil {
			results[name] = err.Error()
		}
	}
	return results
}

func (a attack) mount() error {
	if err := unix.Mount("none", a.Own, "tmpfs", 0, ""); err != nil {
		return err
	}
	return unix.Unmount(a.Own, unix.MNT_DETACH)
}

func closeIf(c io.Closer, err error) {
	if err == nil {
		c.Close()
	}
}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, 5*time.Second)
	closeIf(c, err)
	return err
}

// queued is the information sent with signal 0, which only tests permission.
func queued() uintptr {
	info := &unix.Siginfo{Code: -1} // SI_QUEUE
	return uintptr(unsafe.Pointer(info))
}

func readMemory(pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		text = []byte("00400000-")
	}
	start, _, _ := strings.Cut(string(text), "-")
	at, err := strconv.ParseUint(start, 16, 64)
	if err != nil {
		return err
	}
	buffer := make([]byte, 1)
	local := unix.Iovec{Base: &buffer[0], Len: 1}
	_, err = unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(at), Len: 1}}, 0)
	return err
}

func becomeRoot() error {
	if err := unix.Setresuid(0, 0, 0); err != nil {
		return err
	}
	if unix.Geteuid() != 0 {
		return errors.New("it did not help")
	}
	return nil
}

func hasCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for _, d := range data {
		if d.Effective|d.Permitted|d.Inheritable != 0 {
			return nil
		}
	}
	return errors.New("it has none")
}

func ring() error {
	var params [120]byte
	_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (a attack) runOwn() error {
	content, err := os.ReadFile("/bin/true")
	if err != nil {
		return err
	}
	file := filepath.Join(a.Own, "program")
	if err := os.WriteFile(file, content, 0o755); err != nil {
		return err
	}
	return exec.Command(file).Run()
}

// leave makes an object of System V IPC, which stays after its program, and removes it. The key is IPC_PRIVATE.
func leave(get, control, a, b uintptr) error {
	id, _, errno := unix.Syscall(get, 0, a, b)
	if errno != 0 {
		return errno
	}
	if _, _, errno = unix.Syscall(control, id, 0, 0); errno != 0 { // IPC_RMID is 0
		panic(errno)
	}
	return nil
}

func leaveQueue() error {
	name := uintptr(unsafe.Pointer(unsafe.StringData("cuelight-test\x00")))
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, name, unix.O_RDWR|unix.O_CREAT, 0o600, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	unix.Close(int(fd))
	if _, _, errno = unix.Syscall(unix.SYS_MQ_UNLINK, name, 0, 0); errno != 0 {
		panic(errno)
	}
	return nil
}

func openMany() error {
	for range 5000 {
		fd, err := unix.Dup(0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
	}
	return nil
}

func unlimited(resource int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		return err
	}
	if limit.Max < 1<<45 {
		return fmt.Errorf("%d is the most", limit.Max)
	}
	return nil
}

func seesMore() error {
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.Contains([]string{"PATH", "LC_ALL", "AV_LOG_FORCE_NOCOLOR", "TMPDIR", "LD_LIBRARY_PATH"}, name) {
			return nil
		}
	}
	return errors.New("there is no more")
}

func TestSandbox_BlocksAnAttackingProgram(t *testing.T) {
	for _, l := range sandbox.Layers() {
		if !l.Offered {
			t.Skipf("this host does not offer %s: %s", l.Name, l.Detail)
		}
	}
	if err := sandbox.HideProcess(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) })
	t.Setenv("CUELIGHT_DATABASE_URL", "postgres://secret")
	a, dir := newAttack(t)

	got := tryAll(t, SandboxRequire, a, dir)
	for name, failure := range got {
		if mine := strings.HasPrefix(name, "own: "); mine && failure != "" {
			t.Errorf("%s: %s; want it to work", name, failure)
		} else if !mine && failure == "" {
			t.Errorf("the attack %s succeeded", name)
		}
	}
	// Without a sandbox all attempts succeed, which shows that they are real.
	free := tryAll(t, SandboxOff, a, dir)
	for _, name := range []string{
		"read another's readable file", "read the accounts", "list another directory", "write another's writable file",
		"make a file elsewhere",
		"make a link for others", "connect to a Unix socket", "connect over TCP", "listen", "open a UDP socket",
		"signal the parent", "queue a signal for the parent",
		"queue one for a parent's thread", "change the parent's priority", "change the parent's IO priority",
		"get hold of the parent", "run a program that it wrote", "write a file without an end", "open files without an end",
		"leave shared memory", "leave a semaphore", "leave a message queue", "leave a POSIX message queue",
	} {
		if free[name] != "" {
			t.Errorf("unconfined it could not %s: %s", name, free[name])
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	for _, name := range []string{
		"read the admin's secret", "read the parent's environment", "open the parent's memory", "trace the parent",
		"become root", "have capabilities",
	} {
		if free[name] != "" {
			t.Errorf("unconfined it could not %s: %s", name, free[name])
		}
	}
	runAsUser(t)
}

func newAttack(t *testing.T) (attack, string) {
	t.Helper()
	outside, dir := t.TempDir(), t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	local, err := net.Listen("unix", filepath.Join(outside, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := attack{
		Parent: os.Getpid(), Nice: uintptr(20 - raw), Directory: outside, Unix: filepath.Join(outside, "s"),
		TCP: listener.Addr().String(), Own: dir,
		Secret: filepath.Join(outside, "secret"), Readable: filepath.Join(outside, "readable"),
		Writable: filepath.Join(outside, "writable"),
	}
	for file, mode := range map[string]os.FileMode{a.Secret: 0o600, a.Readable: 0o644, a.Writable: 0o666} {
		if err := os.WriteFile(file, []byte("hush"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	// Only the sandbox must block access, not the modes of the test's directories.
	for at := outside; at != filepath.Clean(os.TempDir()); at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return a, dir
}

// tryAll runs the test binary in place of ffmpeg, with a source to read.
func tryAll(t *testing.T, mode Sandbox, a attack, dir string) map[string]string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(t.TempDir(), "source.mp4")
	if err := os.WriteFile(source, []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	a.Source = source
	if mode != SandboxOff && sandbox.CanChangeUser(DefaultUser) {
		a.Source = "/proc/self/fd/3/source.mp4"
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	out := &limitedBuffer{limit: 1 << 20}
	said, err := Tools{FFmpeg: self, Sandbox: mode}.run(t.Context(), command{
		tool: "ffmpeg", args: []string{attackArg, string(text)}, dir: dir, source: source, stdout: out,
	})
	if err != nil && mode != SandboxOff {
		t.Fatalf("%v\n%s", err, said.tail)
	}
	results := map[string]string{}
	if err := json.Unmarshal(out.Bytes(), &results); err != nil || len(results) < 40 {
		t.Fatalf("%v: %q %s", err, out, said.tail)
	}
	for _, name := range []string{"link", "pipe", "program", "own"} {
		_ = os.Remove(filepath.Join(dir, name))
	}
	return results
}

// runAsUser runs the test as an unprivileged user, because most daemons are not root.
func runAsUser(t *testing.T) {
	t.Helper()
	const user = 61001
	home, err := os.MkdirTemp("", "cuelight-user-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(home, "media.test")
	if err := errors.Join(os.WriteFile(program, content, 0o755), os.Chown(home, user, user)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^TestSandbox_BlocksAnAttackingProgram$", "-test.v")
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
}
