package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Wrap makes a command that was not started yet run under the policy.
func (p Policy) Wrap(cmd *exec.Cmd) error {
	if p.Require {
		if err := Check(); err != nil {
			return err
		}
	}
	p.Parent = os.Getpid()
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode policy: %w", err)
	}
	cmd.Args = append([]string{marker, string(text), cmd.Path}, cmd.Args...)
	cmd.Path = "/proc/self/exe" // this program, even if its file was replaced since the start
	return nil
}

// init turns a process that Wrap prepared into the wrapped program.
func init() {
	if len(os.Args) < 4 || os.Args[0] != marker {
		return
	}
	runtime.LockOSThread() // most of the restrictions apply to the thread that executes the program
	err := execConfined(os.Args[1], os.Args[2], os.Args[3:])
	fmt.Fprintln(os.Stderr, failurePrefix+err.Error())
	os.Exit(failureCode)
}

// execConfined confines this process and executes the program. It returns only an error.
func execConfined(policy, path string, args []string) error {
	var p Policy
	if err := json.Unmarshal([]byte(policy), &p); err != nil {
		return fmt.Errorf("decode policy: %w", err)
	}
	program, err := unix.Open(path, unix.O_PATH, 0)
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	p.lowerPriority()
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"set no_new_privs", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{"restrict files (Landlock)", func() error { return p.restrictFiles(path) }},
		{"change the user", p.changeUser},
		{"drop capabilities", p.dropCapabilities},
		{"die with the parent", p.dieWithParent},
		{"set limits", p.setLimits},
		{"restrict system calls (seccomp)", p.restrictCalls}, // last: it forbids some of the calls above
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	err = syscall.Exec(path, args, os.Environ())
	if errors.Is(err, unix.EACCES) && p.User != 0 {
		// The user cannot enter the program's directory, such as root's home. The kernel opens a
		// script once more under this name, so the descriptor is not close-on-exec.
		err = syscall.Exec("/proc/self/fd/"+strconv.Itoa(program), args, os.Environ())
	}
	return fmt.Errorf("start %s: %w", path, err)
}

// lowerPriority ignores errors: it protects the rest of the host, but confines nothing.
func (p Policy) lowerPriority() {
	if p.Nice > 0 {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, p.Nice)
	}
	if p.OOMScore > 0 {
		_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(p.OOMScore)), 0)
	}
}

var (
	// systemDirs have programs, libraries and their configuration.
	systemDirs = []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store",
		"/home/linuxbrew/.linuxbrew", "/etc/alternatives", "/etc/ld.so.conf.d", "/etc/fonts",
		"/sys/devices/system", "/proc/self",
	}
	systemFiles = []string{
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.preload", "/etc/localtime",
		"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory",
		"/dev/urandom", "/dev/random", "/dev/zero",
	}
)

// readWriteAccess is what a program may do in ReadWrite directories. It may not execute what it
// wrote, nor create links and devices, which other programs would follow and open.
const readWriteAccess landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSWriteFile |
	ll.AccessFSTruncate | ll.AccessFSMakeReg | ll.AccessFSMakeDir | ll.AccessFSRemoveFile | ll.AccessFSRemoveDir

func (p Policy) restrictFiles(program string) error {
	if landlockABI() <= 0 {
		return nil // Wrap has refused the start if the layer is required
	}
	rules := []landlock.Rule{
		landlock.RODirs(systemDirs...).IgnoreIfMissing(),
		landlock.ROFiles(append(systemFiles, program)...).IgnoreIfMissing(),
		landlock.RWFiles("/dev/null"),
		landlock.PathAccess(readWriteAccess, p.ReadWrite...),
	}
	rules = append(rules, p.deviceRules()...)
	for _, path := range p.ReadOnly {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// The program reports it.
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

// deviceRules let the program use the devices, as drivers do.
func (p Policy) deviceRules() []landlock.Rule {
	if len(p.Devices) == 0 {
		return nil
	}
	rules := []landlock.Rule{
		landlock.RWFiles(p.Devices...).WithIoctlDev().IgnoreIfMissing(),
		// NVIDIA's drivers since 570 fail if they cannot name their threads.
		landlock.PathAccess(ll.AccessFSWriteFile|ll.AccessFSTruncate, "/proc/self/task"),
	}
	for _, device := range p.Devices {
		if dir := filepath.Dir(device); dir != "/dev" { // libdrm lists the cards in /dev/dri
			rules = append(rules, landlock.PathAccess(ll.AccessFSReadDir, dir).IgnoreIfMissing())
		}
	}
	return rules
}

func (p Policy) changeUser() error {
	if p.User == 0 {
		return nil
	}
	if err := syscall.Setgroups(append([]int{p.User}, p.Groups...)); err != nil {
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

// dropCapabilities drops all. no_new_privs keeps the process from getting any again.
func (p Policy) dropCapabilities() error {
	if p.KeepCapabilities {
		return nil
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // Linux before 4.3 has none
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// dieWithParent requests the signal at the parent's death again: the change of the user has
// cancelled the request that the parent made.
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
	for _, limit := range []struct {
		resource int
		value    uint64
	}{
		{unix.RLIMIT_FSIZE, p.FileSize}, {unix.RLIMIT_CPU, p.CPU}, {unix.RLIMIT_NPROC, p.Tasks}, {unix.RLIMIT_AS, p.Memory},
		{unix.RLIMIT_NOFILE, p.OpenFiles},
	} {
		if limit.value == 0 {
			continue
		}
		var current unix.Rlimit
		if err := unix.Getrlimit(limit.resource, &current); err != nil {
			return err
		}
		value := min(limit.value, current.Max)
		if err := unix.Setrlimit(limit.resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
			return err
		}
	}
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}
