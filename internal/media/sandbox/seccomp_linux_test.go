//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filteredVariable makes the test binary install the filter that it names on itself, and print
// which calls succeed.
const filteredVariable = "CUELIGHT_TEST_FILTER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(filteredVariable); kind != "" {
		runtime.LockOSThread()
		results, err := tryCalls(kind)
		if err != nil {
			panic(err)
		}
		_ = json.NewEncoder(os.Stdout).Encode(results)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const allOfUser = "other: ioprio_set, all processes of the user"

// tryCalls makes calls that affect this process and its parent, from a thread with the filter. It
// returns whether each call succeeded.
func tryCalls(kind string) (map[string]bool, error) {
	own, parent := uintptr(os.Getpid()), uintptr(os.Getppid())
	thread := uintptr(unix.Gettid())
	program := filter(int(own), kind == "scoped", false)
	if kind != "none" {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return nil, err
		}
		if _, err := setFilter(0, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
			return nil, err
		}
	}
	queued := &unix.Siginfo{Code: -1} // SI_QUEUE
	info := uintptr(unsafe.Pointer(queued))
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return nil, err
	}
	nice := uintptr(20 - raw) // the current value, so that nothing changes
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		return nil, err
	}
	file := uintptr(pipe[0])
	limit := &unix.Rlimit{}
	results := map[string]bool{}
	for name, c := range map[string][]uintptr{
		"own: kill":              {unix.SYS_KILL, own},
		"own: kill the group":    {unix.SYS_KILL, 0},
		"own: tgkill":            {unix.SYS_TGKILL, own, thread},
		"own: rt_sigqueueinfo":   {unix.SYS_RT_SIGQUEUEINFO, own, 0, info},
		"own: rt_tgsigqueueinfo": {unix.SYS_RT_TGSIGQUEUEINFO, own, thread, 0, info},
		"own: setpriority":       {unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, nice},
		"own: ioprio_set":        {unix.SYS_IOPRIO_SET, 1, own},
		"own: prlimit64":         {unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, 0, uintptr(unsafe.Pointer(limit))},
		"own: fcntl":             {unix.SYS_FCNTL, file, unix.F_GETFD},

		"signal: kill":              {unix.SYS_KILL, parent},
		"signal: tgkill":            {unix.SYS_TGKILL, parent, parent},
		"signal: tkill":             {unix.SYS_TKILL, parent},
		"signal: rt_sigqueueinfo":   {unix.SYS_RT_SIGQUEUEINFO, parent, 0, info},
		"signal: rt_tgsigqueueinfo": {unix.SYS_RT_TGSIGQUEUEINFO, parent, parent, 0, info},
		"signal: F_SETOWN":          {unix.SYS_FCNTL, file, unix.F_SETOWN, parent},
		"signal: F_SETSIG":          {unix.SYS_FCNTL, file, unix.F_SETSIG, uintptr(unix.SIGTERM)},

		"other: pidfd_open":  {unix.SYS_PIDFD_OPEN, parent},
		"other: setpriority": {unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, parent, nice},
		"other: ioprio_set":  {unix.SYS_IOPRIO_SET, 1, parent},
		// The priority is invalid, so that nothing changes. The filter runs before that is checked.
		allOfUser:          {unix.SYS_IOPRIO_SET, ioprioUser, 0, 0xffff},
		"other: prlimit64": {unix.SYS_PRLIMIT64, parent, unix.RLIMIT_CORE, 0, uintptr(unsafe.Pointer(limit))},
	} {
		c = append(c, 0, 0, 0, 0)
		_, _, errno := unix.RawSyscall6(c[0], c[1], c[2], c[3], c[4], 0, 0)
		results[name] = errno == 0 || name == allOfUser && errno == unix.EINVAL
	}
	runtime.KeepAlive(queued)
	runtime.KeepAlive(limit)
	return results, nil
}

func TestFilter_DeniesAccessToOtherProcesses(t *testing.T) {
	t.Parallel()
	if !Layers()[1].Offered {
		t.Skip("this host has no seccomp")
	}
	for kind, denied := range map[string]map[string]bool{
		"none":     {},
		"scoped":   {"other": true}, // Landlock denies the signals
		"unscoped": {"other": true, "signal": true},
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), filteredVariable+"="+kind)
		text, err := cmd.Output()
		results := map[string]bool{}
		if err = errors.Join(err, json.Unmarshal(text, &results)); err != nil || len(results) < 15 {
			t.Fatalf("%s: %v: %s", kind, err, text)
		}
		for name, succeeded := range results {
			class, _, _ := strings.Cut(name, ":")
			if succeeded == denied[class] {
				t.Errorf("%s: %s: succeeded is %t", kind, name, succeeded)
			}
		}
	}
}
