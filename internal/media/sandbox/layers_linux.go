package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Layers returns the layers of the confinement, and what this host offers of them.
func Layers() []Layer {
	return []Layer{landlockLayer(), seccompLayer(), accountLayer()}
}

// landlockABI returns the version of Landlock in this kernel; 0 if there is none.
func landlockABI() int {
	version, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return version
}

func landlockLayer() Layer {
	version := landlockABI()
	if version <= 0 {
		return Layer{Name: "Landlock", Detail: "the kernel has none, it is off (boot with lsm=landlock,...), " +
			"or the container's seccomp profile forbids it"}
	}
	detail := fmt.Sprintf("version %d: files", version)
	if version >= 4 {
		detail += ", TCP"
	}
	if version >= 6 {
		detail += ", signals to other processes"
	}
	return Layer{Name: "Landlock", Offered: true, Detail: detail}
}

func seccompLayer() Layer {
	if !hasFilter {
		return Layer{Name: "seccomp", Detail: "there is no filter for this processor"}
	}
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		return Layer{Name: "seccomp", Detail: "the kernel has none"}
	}
	return Layer{Name: "seccomp", Offered: true, Detail: "no sockets, tracing, mounts, namespaces, IPC objects"}
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

// changeUserCapabilities are those by which root starts a program as another user, gives it its
// files, kills it, and reads the files afterwards.
var changeUserCapabilities = []struct {
	number int
	name   string
}{
	{unix.CAP_CHOWN, "CAP_CHOWN"}, {unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"}, {unix.CAP_FOWNER, "CAP_FOWNER"},
	{unix.CAP_KILL, "CAP_KILL"}, {unix.CAP_SETGID, "CAP_SETGID"}, {unix.CAP_SETUID, "CAP_SETUID"},
}

// missingCapability returns the first of changeUserCapabilities that this process lacks, or "".
func missingCapability() string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return "capabilities"
	}
	for _, c := range changeUserCapabilities {
		if data[c.number/32].Effective&(1<<(c.number%32)) == 0 {
			return c.name
		}
	}
	return ""
}

// CanChangeUser reports whether this process can start a program as that user: it is root, has the
// capabilities, and the user exists in its user namespace.
func CanChangeUser(user int) bool {
	return os.Geteuid() == 0 && missingCapability() == "" &&
		isMapped("/proc/self/uid_map", user) && isMapped("/proc/self/gid_map", user)
}

func isMapped(file string, id int) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return true // the change of the user fails if it is not
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		first, _ := strconv.ParseInt(fields[0], 10, 64)
		count, _ := strconv.ParseInt(fields[2], 10, 64)
		if int64(id) >= first && int64(id) < first+count {
			return true
		}
	}
	return false
}

// HideProcess keeps other processes of the same user from reading this one's memory, environment
// and open files, and from tracing it. Only the administrator can attach a debugger then, and the
// process leaves no core dumps.
func HideProcess() error {
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
