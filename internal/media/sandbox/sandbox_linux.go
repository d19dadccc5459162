package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// self is this program's file, also where it was replaced since the start.
const self = "/proc/self/exe"

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
		return fmt.Errorf("write policy: %w", err)
	}
	cmd.Args = append([]string{marker, string(text), cmd.Path}, cmd.Args...)
	cmd.Path = self
	return nil
}

// HideProcess keeps processes of the same user from reading this one's memory,
// environment and open files, and from tracing it. It leaves no core dumps, and
// only the administrator can attach a debugger.
func HideProcess() error {
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// Layers are the parts of the confinement, and what of them is to be had here.
func Layers() []Layer {
	return []Layer{landlockLayer(), seccompLayer(), accountLayer()}
}

// landlockABI is the version of Landlock that this kernel has; 0 if none.
func landlockABI() int {
	version, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return version
}

func landlockLayer() Layer {
	l := Layer{Name: "Landlock"}
	version := landlockABI()
	if version <= 0 {
		l.Detail = "the kernel has none, it is off (boot with lsm=landlock,...), or the container's seccomp profile forbids it"
		return l
	}
	l.Offered = true
	l.Detail = fmt.Sprintf("version %d: files", version)
	if version >= 4 {
		l.Detail += ", TCP"
	}
	if version >= 6 {
		l.Detail += ", signals to other processes"
	}
	return l
}

func seccompLayer() Layer {
	l := Layer{Name: "seccomp"}
	if !filterKnown {
		l.Detail = "there is no filter for this processor"
		return l
	}
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		l.Detail = "the kernel has none"
		return l
	}
	l.Offered, l.Detail = true, "no sockets, tracing, mounts, namespaces"
	return l
}

func accountLayer() Layer {
	l := Layer{Name: "account", Offered: true}
	switch {
	case os.Geteuid() != 0:
		l.Detail = fmt.Sprintf("the user %d, as this process, without capabilities", os.Geteuid())
	case missingCapability() != "":
		l.Offered, l.Detail = false, "root without "+missingCapability()+" cannot start programs as another user"
	default:
		l.Detail = "one of its own, without privileges, instead of root"
	}
	return l
}

// needed are the capabilities by which root starts a program as another user,
// gives it its files, ends it, and has the files afterwards.
var needed = []struct {
	number int
	name   string
}{
	{unix.CAP_CHOWN, "CAP_CHOWN"}, {unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"}, {unix.CAP_FOWNER, "CAP_FOWNER"},
	{unix.CAP_KILL, "CAP_KILL"}, {unix.CAP_SETGID, "CAP_SETGID"}, {unix.CAP_SETUID, "CAP_SETUID"},
}

func missingCapability() string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return "capabilities"
	}
	for _, c := range needed {
		if data[c.number/32].Effective&(1<<(c.number%32)) == 0 {
			return c.name
		}
	}
	return ""
}

// CanChangeUser reports whether a program can be started as that user: this
// process is root, may do so, and the user exists in its user namespace.
func CanChangeUser(user int) bool {
	return os.Geteuid() == 0 && missingCapability() == "" &&
		isMapped("/proc/self/uid_map", user) && isMapped("/proc/self/gid_map", user)
}

func isMapped(file string, number int) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return true // it will turn out
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		first, _ := strconv.ParseInt(fields[0], 10, 64)
		count, _ := strconv.ParseInt(fields[2], 10, 64)
		if int64(number) >= first && int64(number) < first+count {
			return true
		}
	}
	return false
}
