package media

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/childproc"
)

// helper is the environment variable that makes the test binary run as the process
// to be killed.
const helper = "CUELIGHT_TEST_CHILD_OF"

func TestRun_ChildDiesWithParent(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(helper); dir != "" {
		_, err := Tools{FFmpeg: filepath.Join(dir, "tool")}.run(t.Context(), command{tool: "ffmpeg", dir: dir})
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Rename(script(t, "echo $$ > self.pid\nexec sleep 3600\n"), filepath.Join(dir, "tool")); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestRun_ChildDiesWithParent$")
	cmd.Env = append(os.Environ(), helper+"="+dir)
	parent, err := childproc.Start(cmd, childproc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pid := waitForPid(t, dir, "self.pid")
	parent.Kill()
	waitUntilGone(t, pid)
}

func TestRun_LowersPriority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := background(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = Tools{FFmpeg: script(t, "echo $$ > self.pid\nexec sleep 3600\n"), Nice: 7}.run(ctx, command{
			tool: "ffmpeg", dir: dir,
		})
	}()
	pid := waitForPid(t, dir, "self.pid")
	waitForLine(t, fmt.Sprintf("/proc/%d/oom_score_adj", pid),
		func(s string) bool { return strings.TrimSpace(s) == strconv.Itoa(oomScore) })
	waitForLine(t, fmt.Sprintf("/proc/%d/stat", pid), func(s string) bool {
		fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
		return len(fields) > 16 && fields[16] == "7" && fields[3] == strconv.Itoa(pid)
	})
	if text, _ := os.ReadFile("/proc/self/autogroup"); len(text) > 0 { // the kernel groups processes by session
		waitForLine(t, fmt.Sprintf("/proc/%d/autogroup", pid),
			func(s string) bool { return strings.HasSuffix(strings.TrimSpace(s), "nice 7") })
	}
	cancel(nil)
	<-done
}
