package media

import (
	"fmt"
	"strings"
	"testing"
)

func TestStderrTail_IsShortCleanAndCounted(t *testing.T) {
	t.Parallel()
	s := &stderrTail{source: "/media/secret.mp4"}
	fmt.Fprintf(s,
		"[h264 @ 0x55d0c0ffee] [error] bad \xff thing\r[mov @ 0x1] [fatal] file:/media/secret.mp4: no\x1b[31m\n%s",
		strings.Repeat("x", 100000))
	report := s.report()
	if report.errors != 2 || s.diskError != nil {
		t.Errorf("%d errors, disk error %v; want 2 and none", report.errors, s.diskError)
	}
	if !strings.HasPrefix(report.tail, "[h264] bad \uFFFD thing\n[mov] source: no[31m\nxxx") ||
		len(report.tail) > tailBytes {
		t.Errorf("tail %q", report.tail)
	}
	for range 1000 {
		fmt.Fprintln(s, strings.Repeat("y", 300))
	}
	if n := len(s.report().tail); n > tailBytes || n < tailBytes/2 {
		t.Errorf("tail of %d bytes", n)
	}
}
