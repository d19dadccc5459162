package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// init turns a process that was started by Policy.Wrap into the wrapped program.
func init() {
	if len(os.Args) < 4 || os.Args[0] != marker {
		return
	}
	runtime.LockOSThread() // most of what follows is the thread's that executes
	fmt.Fprintln(os.Stderr, prefix+become(os.Args[1], os.Args[2], os.Args[3:]).Error())
	os.Exit(exitCode)
}

// become returns only with an error.
func become(policy, path string, args []string) error {
	var p Policy
	if err := json.Unmarshal([]byte(policy), &p); err != nil {
		return fmt.Errorf("read policy: %w", err)
	}
	program, err := unix.Open(path, unix.O_PATH, 0)
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"give way", p.giveWay},
		{"set no_new_privs", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{"restrict files (Landlock)", func() error { return p.restrictFiles(path) }},
		{"change the user", p.changeUser},
		{"drop capabilities", p.dropCapabilities},
		{"die with the parent", p.dieWithParent},
		{"set limits", p.setLimits},
		{"restrict system calls (seccomp)", p.restrictCalls},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	err = syscall.Exec(path, args, os.Environ())
	if errors.Is(err, unix.EACCES) && p.User != 0 {
		// It lies where that user has no way in, such as root's home. A script is
		// opened once more under this name, so the file stays open.
		err = syscall.Exec("/proc/self/fd/"+strconv.Itoa(program), args, os.Environ())
	}
	return fmt.Errorf("start %s: %w", path, err)
}

// giveWay is a courtesy: a host that forbids it loses nothing.
func (p Policy) giveWay() error {
	if p.Nice > 0 {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, p.Nice)
	}
	if p.OOMScore > 0 {
		_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(p.OOMScore)), 0)
	}
	return nil
}

var (
	// systemDirs hold programs, libraries and what they need to know.
	systemDirs = []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew",
		"/etc/alternatives", "/etc/ld.so.conf.d", "/etc/fonts", "/sys/devices/system", "/proc/self",
	}
	systemFiles = []string{
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.preload", "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat",
		"/proc/sys/vm/overcommit_memory", "/dev/urandom", "/dev/random", "/dev/zero",
	}
)

// ownDir is what may be done in a directory of the program's own: not execute
// what it wrote, nor make links and devices, which others would follow and open.
const ownDir landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSWriteFile | ll.AccessFSTruncate |
	ll.AccessFSMakeReg | ll.AccessFSMakeDir | ll.AccessFSRemoveFile | ll.AccessFSRemoveDir

func (p Policy) restrictFiles(program string) error {
	if landlockABI() <= 0 {
		return nil // Wrap has refused it where it is required
	}
	rules := []landlock.Rule{
		landlock.RODirs(systemDirs...).IgnoreIfMissing(),
		landlock.ROFiles(append(systemFiles, program)...).IgnoreIfMissing(),
		landlock.RWFiles("/dev/null"),
		landlock.PathAccess(ownDir, p.ReadWrite...),
	}
	for _, path := range p.ReadOnly {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// The program will say so.
		case err != nil:
			return err
		case info.IsDir():
			rules = append(rules, landlock.RODirs(path))
		default:
			rules = append(rules, landlock.ROFiles(path))
		}
	}
	return landlock.V11.BestEffort().Restrict(rules...)
}

func (p Policy) changeUser() error {
	if p.User == 0 {
		return nil
	}
	if err := syscall.Setgroups([]int{p.User}); err != nil {
		return fmt.Errorf("set groups: %w", err)
	}
	if err := syscall.Setresgid(p.User, p.User, p.User); err != nil {
		return fmt.Errorf("set group %d: %w", p.User, err)
	}
	if err := syscall.Setresuid(p.User, p.User, p.User); err != nil {
		return fmt.Errorf("set user %d: %w", p.User, err)
	}
	return nil
}

// dropCapabilities leaves none, of which no_new_privs lets none come back.
func (p Policy) dropCapabilities() error {
	if p.KeepCapabilities {
		return nil
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // kernels before 4.3 have none
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// dieWithParent asks anew for the signal at the parent's death: the change of the
// user has cancelled what was asked for at the start.
func (p Policy) dieWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if p.Parent != 0 && os.Getppid() != p.Parent {
		return errors.New("the parent has ended")
	}
	return nil
}

func (p Policy) setLimits() error {
	for _, l := range []struct {
		resource int
		value    uint64
	}{
		{unix.RLIMIT_FSIZE, p.FileSize}, {unix.RLIMIT_CPU, p.CPU}, {unix.RLIMIT_NPROC, p.Tasks}, {unix.RLIMIT_AS, p.Memory},
	} {
		if l.value == 0 {
			continue
		}
		if err := lower(l.resource, l.value); err != nil {
			return err
		}
	}
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}

// lower sets a limit, unless there is a lower one.
func lower(resource int, value uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return err
	}
	value = min(value, now.Max)
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value})
}
