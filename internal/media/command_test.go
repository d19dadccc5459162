package media

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
)

func TestProbe_NamesMissingProgram(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=64x64:r=10:d=1 "+h264)
	_, err := Tools{FFprobe: filepath.Join(t.TempDir(), "none")}.Probe(t.Context(), src)
	if !errors.Is(err, ErrToolMissing) || !strings.Contains(err.Error(), "ffprobe") {
		t.Errorf("error %v; want ErrToolMissing for ffprobe", err)
	}
	_, err = Tools{FFmpeg: "no-such-ffmpeg"}.Probe(t.Context(), src)
	if !errors.Is(err, ErrToolMissing) || !strings.Contains(err.Error(), "ffmpeg") {
		t.Errorf("error %v; want ErrToolMissing for ffmpeg", err)
	}
}

func TestCapabilities_RequireEncoder(t *testing.T) {
	t.Parallel()
	tools := Tools{FFmpeg: script(t, "exit 0\n")}
	_, err := tools.capabilities(t.Context(), renditionJob{})
	if !errors.Is(err, ErrToolMissing) || !strings.Contains(err.Error(), "libx264") {
		t.Errorf("error %v; want ErrToolMissing for libx264", err)
	}
}

func TestCapabilityCache_QueriesAgainAfterFileChange(t *testing.T) {
	t.Parallel()
	asked := filepath.Join(t.TempDir(), "asked")
	file := script(t, "echo >> '"+asked+"'\necho ' DEV.LS h264 x (encoders: libx264 )'\n")
	tools := Tools{FFmpeg: file, Cache: new(CapabilityCache), Sandbox: SandboxOff} // it writes outside its directory
	times := func() int {
		t.Helper()
		if _, err := tools.capabilities(t.Context(), renditionJob{}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(asked)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
	first, again := times(), times()
	if first == 0 || again != first {
		t.Errorf("it was queried %d times, and then %d", first, again)
	}
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if again := times(); again != 2*first {
		t.Errorf("after the change the program was queried %d times, want %d", again-first, first)
	}
}

// ignoresSignals has a child that runs for an hour.
const ignoresSignals = `trap '' TERM INT HUP
sleep 3600 &
echo $! > child.pid
echo $$ > self.pid
echo frame=1
wait
`

func TestRun_KillsGroupWhenCancelled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := background(t)
	why := errors.New("lease lost")
	done := make(chan error, 1)
	go func() {
		_, err := Tools{FFmpeg: script(t, ignoresSignals)}.run(ctx, command{tool: "ffmpeg", dir: dir})
		done <- err
	}()
	pids := []int{waitForPid(t, dir, "child.pid"), waitForPid(t, dir, "self.pid")}
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("error %v; want the cause of the cancellation", err)
	}
	for _, pid := range pids {
		waitUntilGone(t, pid)
	}
}

func TestRun_KillsStalledChild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tools := Tools{FFmpeg: script(t, ignoresSignals), Stall: 300 * time.Millisecond}
	_, err := tools.run(t.Context(), command{tool: "ffmpeg", dir: dir})
	if !errors.Is(err, ErrStalled) || errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want ErrStalled", err)
	}
	waitUntilGone(t, waitForPid(t, dir, "child.pid"))
}

func TestRun_KillsChildThatRepeatsItsOutput(t *testing.T) {
	t.Parallel()
	if os.Getenv("CUELIGHT_TEST_REPEATS") != "" {
		repeatForever()
	}
	// No sandbox, because the script starts the test binary.
	tools := Tools{FFmpeg: script(t, repeating(t)), Stall: 2 * time.Second, Sandbox: SandboxOff}
	_, err := tools.run(t.Context(), command{tool: "ffmpeg", stdout: newProgressReader(10, nil, time.Now)})
	if !errors.Is(err, ErrStalled) {
		t.Errorf("error %v; want ErrStalled", err)
	}
}

// repeating returns a script that repeats the same progress forever, like a
// deadlocked ffmpeg.
func repeating(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return "export CUELIGHT_TEST_REPEATS=1\nexec '" + self + "' -test.run='^TestRun_KillsChildThatRepeatsItsOutput$'\n"
}

func repeatForever() {
	for ; ; time.Sleep(50 * time.Millisecond) {
		fmt.Print("frame=7\nout_time_us=5\nprogress=continue\n")
	}
}

func TestRun_KeepsChildThatMakesProgress(t *testing.T) {
	t.Parallel()
	tools := Tools{
		FFmpeg: script(t,
			"i=0; while test $i -lt 40; do i=$((i+1)); echo frame=$i; echo progress=continue; sleep 0.1; done\n"),
		Stall: 3 * time.Second,
	}
	reader := newProgressReader(10, nil, time.Now)
	if _, err := tools.run(t.Context(), command{tool: "ffmpeg", stdout: reader}); err != nil {
		t.Error(err)
	}
	if reader.frames != 40 {
		t.Errorf("%d frames; want 40", reader.frames)
	}
}

func TestRun_ReportsHowChildEnded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		is         error
		says       string
	}{
		{"code", "echo 'first' >&2; echo 'last words' >&2; exit 3", nil, "code 3: first\nlast words"},
		{"signal", "kill -KILL $$", nil, "killed by another process (signal: killed)"},
		{"other signal", "kill -SEGV $$", nil, "ended by a signal (segmentation fault)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Tools{FFmpeg: script(t, tt.text+"\n")}.run(t.Context(), command{tool: "ffmpeg"})
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v; want %v", err, tt.is)
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v; want %q in it", err, tt.says)
			}
		})
	}
}

func TestProbe_DoesNotRejectWhenFFprobeIsKilled(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=64x64:r=10:d=1 "+h264)
	for _, text := range []string{"kill -KILL $$\n", "echo 'Cannot allocate memory' >&2; exit 1\n"} {
		_, err := Tools{FFprobe: script(t, text)}.Probe(t.Context(), src)
		if rejected := (*RejectedError)(nil); err == nil || errors.As(err, &rejected) {
			t.Errorf("after %q: %v; want an error that is not a rejection", text, err)
		}
	}
}

func TestRun_PassesMinimalEnvironment(t *testing.T) {
	t.Setenv("CUELIGHT_SECRET", "hush")
	t.Setenv("FFREPORT", "file=report.log")
	t.Setenv("http_proxy", "http://proxy.invalid")
	buffer := &limitedBuffer{limit: 1 << 16}
	_, err := (Tools{FFmpeg: script(t, "env\n")}).run(t.Context(), command{tool: "ffmpeg", stdout: buffer})
	if err != nil {
		t.Fatal(err)
	}
	env := buffer.String()
	if !strings.Contains(env, "LC_ALL=C\n") || !strings.Contains(env, "PATH=") {
		t.Errorf("environment lacks something:\n%s", env)
	}
	for _, name := range []string{"CUELIGHT_SECRET", "FFREPORT", "http_proxy"} {
		if strings.Contains(env, name) {
			t.Errorf("environment has %s", name)
		}
	}
}

func waitForPid(t *testing.T, dir, name string) int {
	t.Helper()
	var pid int
	waittest.Until(t, name+" is written", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		var err error
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

// waitUntilGone waits until a process has ended. A zombie counts as ended.
func waitUntilGone(t *testing.T, pid int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("process %d has ended", pid), func() bool {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || isZombie(pid)
	})
}

func isZombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

func waitForLine(t *testing.T, file string, ok func(string) bool) {
	t.Helper()
	waittest.Until(t, file+" has the expected text", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && ok(string(text))
	})
}
