package result

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// cpu is the processor's name. Many that are not x86 have none here.
func cpu() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func memory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}

func kernel() string {
	data, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return "Linux " + strings.TrimSpace(string(data))
}

// filesystem is the kind of the one that dir is on, and what it is mounted from.
func filesystem(dir string) string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	return findMount(data, dir)
}

// mounted finds the mount that dir is below, in the kernel's list; of several
// at one place the last, which hides the others.
func findMount(mountinfo []byte, dir string) string {
	best, kind := "", ""
	for lines := bufio.NewScanner(bytes.NewReader(mountinfo)); lines.Scan(); {
		place, from, ok := strings.Cut(lines.Text(), " - ")
		p, f := strings.Fields(place), strings.Fields(from)
		if !ok || len(p) < 5 || len(f) < 2 {
			continue
		}
		at := unescape.Replace(p[4])
		if len(at) >= len(best) && below(dir, at) {
			best, kind = at, f[0]+" on "+unescape.Replace(f[1])
		}
	}
	return kind
}

func below(dir, at string) bool {
	rel, err := filepath.Rel(at, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// unescape undoes what the kernel writes for blanks in paths.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
