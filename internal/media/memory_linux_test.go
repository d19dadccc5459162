package media

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryLimit_RespectsControlGroup(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for file, text := range map[string]string{
		"memory.max": "max\n", "a.slice/memory.max": "3000\n", "a.slice/b.service/memory.max": "max\n",
		"memory/memory.limit_in_bytes": "5000\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		own       string
		all, want int64
	}{
		{"0::/a.slice/b.service\n", 9000, 3000},
		{"0::/a.slice/b.service\n", 2000, 2000},
		{"0::/\n", 9000, 5000},
		{"0::/../elsewhere\n", 9000, 5000},
		{"", 4000, 4000},
	} {
		if got := cgroupMemory(root, c.own, c.all); got != c.want {
			t.Errorf("group %q of %d: %d; want %d", c.own, c.all, got, c.want)
		}
	}
	if n := defaultMemory(); n < minMemory {
		t.Errorf("the default is %d bytes", n)
	}
}
