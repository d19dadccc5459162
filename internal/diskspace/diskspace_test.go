package diskspace_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/diskspace"
)

func TestCheck_KeepsTheReserve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := diskspace.Check(dir, 1, 1<<60); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("with too large a reserve: %v; want ENOSPC", err)
	}
	if err := diskspace.Check(dir, 1, 0); err != nil {
		t.Errorf("one byte: %v", err)
	}
	if err := diskspace.Check(dir+"/missing", 1<<60, 0); err != nil {
		t.Errorf("with unknown free space: %v", err)
	}
}

func TestFullError_SaysWhatHelps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err                  diskspace.FullError
		exceedsDisk, hasRoom bool
		want                 string
	}{
		"full":                 {diskspace.FullError{Need: 50, Size: 100, Free: 10}, false, true, "50 B needed, 0 B must stay free, 10 B left"},
		"within the reserve":   {diskspace.FullError{Need: 50, Size: 100, Free: 10, Reserve: 20}, false, false, "free some space"},
		"too small":            {diskspace.FullError{Need: 101, Size: 100, Free: 10}, true, true, "use a larger disk"},
		"too large a reserve":  {diskspace.FullError{Need: 101, Size: 100, Free: 10, Reserve: 100}, false, false, "free some space"},
		"larger than its rest": {diskspace.FullError{Need: 61, Size: 100, Free: 90, Reserve: 40}, true, true, "100 B, of which 40 B"},
	} {
		if c.err.ExceedsDisk() != c.exceedsDisk || c.err.HasRoomForSmaller() != c.hasRoom || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, exceeds the disk %t, has room for smaller %t", name, &c.err, c.err.ExceedsDisk(), c.err.HasRoomForSmaller())
		}
	}
}
