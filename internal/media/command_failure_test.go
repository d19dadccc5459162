package media

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// busyHang starts two processes that each use a full processor, ignore signals and
// print nothing.
const busyHang = `trap '' TERM INT HUP QUIT
(trap '' TERM INT HUP QUIT; while :; do :; done) &
echo $! > child.pid
echo $$ > self.pid
while :; do :; done
`

func TestRun_KillsBusyHangingChildAndItsChildren(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tools := Tools{FFmpeg: script(t, busyHang), Stall: 300 * time.Millisecond}
	_, err := tools.run(t.Context(), command{tool: "ffmpeg", dir: dir, stdout: newProgressReader(10, nil, time.Now)})
	if !errors.Is(err, ErrStalled) || !strings.Contains(err.Error(), "s of processor time") {
		t.Errorf("error %v; want ErrStalled", err)
	}
	wantGroupGone(t, waitForPid(t, dir, "self.pid"), waitForPid(t, dir, "child.pid"))
}

// If ffmpeg is a script, the processes that it started must end when the shell is
// killed or exits.
func TestRun_KillsProcessesLeftByChild(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{"killed": "kill -KILL $$", "ended": "exit 0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			began := time.Now()
			_, err := Tools{FFmpeg: script(t, "sleep 3600 &\necho $! > child.pid\necho $$ > self.pid\n"+end+"\n")}.
				run(t.Context(), command{tool: "ffmpeg", dir: dir})
			if (err == nil) != (name == "ended") {
				t.Errorf("error %v", err)
			}
			if took := time.Since(began); took >= 5*time.Second {
				t.Errorf("it took %v", took)
			}
			wantGroupGone(t, waitForPid(t, dir, "self.pid"), waitForPid(t, dir, "child.pid"))
		})
	}
}

// wantGroupGone checks at once: the processes must be gone when the call returns.
func wantGroupGone(t *testing.T, leader int, others ...int) {
	t.Helper()
	for _, pid := range others {
		if syscall.Kill(pid, 0) == nil && !isZombie(pid) {
			t.Errorf("process %d of the group still runs", pid)
		}
	}
	if syscall.Kill(leader, 0) == nil {
		t.Errorf("the group's leader %d still runs", leader)
	}
}

func TestStep_IsCalledOnlyForProgress(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=64x64:r=10:d=1 -f lavfi -i sine=d=1 "+h264)
	var steps []int64
	tools := fastTools
	tools.Step = func(n int64) { steps = append(steps, n) }
	counted := func(what string, call func() error) {
		t.Helper()
		steps = nil
		if err := call(); err != nil {
			t.Fatal(err)
		}
		for i, n := range steps {
			if n != int64(i+1) {
				t.Fatalf("%s reported steps %v", what, steps)
			}
		}
		if len(steps) == 0 {
			t.Errorf("%s reported no step", what)
		}
	}
	dir, ctx := t.TempDir(), t.Context()
	var info *Info
	var out *Output
	counted("Probe", func() (err error) { info, err = tools.Probe(ctx, src); return err })
	counted("Transcode",
		func() (err error) { out, err = tools.Transcode(ctx, src, info, Ladder(info), dir, nil); return err })
	counted("Check", func() error { return tools.Check(ctx, info, dir, out) })
	counted("WriteManifests", func() error { return tools.WriteManifests(ctx, dir, out) })
	counted("Poster", func() error { return tools.Poster(ctx, src, info, dir+"/poster.jpg") })

	steps = nil
	still := Tools{
		FFmpeg:  script(t, "echo frame=7; echo progress=continue; exec sleep 600\n"), // it never waits for a processor
		Sandbox: SandboxOff, Stall: 5 * time.Second, Step: tools.Step,
	}
	_, err := still.withStepCounter().run(ctx, command{tool: "ffmpeg", stdout: newProgressReader(10, nil, time.Now)})
	// Steps: the start, the output, and the end.
	if !errors.Is(err, ErrStalled) || len(steps) > 3 {
		t.Errorf("steps %v of a child without progress, %v", steps, err)
	}
	steps = nil
	goesOn := Tools{FFmpeg: script(t, "for i in 1 2 3 4 5 6; do echo frame=$i; sleep 0.5; done\n"), Step: tools.Step}
	_, err = goesOn.withStepCounter().run(ctx, command{tool: "ffmpeg", stdout: newProgressReader(10, nil, time.Now)})
	if err != nil || len(steps) < 3 {
		t.Errorf("steps %v of a child with 3 s of progress, %v", steps, err)
	}
}

func TestRun_KillsChildAboveMemoryLimit(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("this system does not report the memory of a process")
	}
	dir := t.TempDir()
	// The memory is used by a child of the shell, which must count too.
	tools := Tools{
		FFmpeg: script(t, "echo $$ > self.pid\ndd if=/dev/zero of=/dev/null bs=300M\nexit 0\n"), Memory: 100 << 20,
	}
	_, err := tools.run(t.Context(), command{tool: "ffmpeg", dir: dir})
	if !errors.Is(err, ErrMemory) || errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want ErrMemory", err)
	}
	wantGroupGone(t, waitForPid(t, dir, "self.pid"))

	tools.Memory = 4 << 30
	tools.FFmpeg = script(t, "dd if=/dev/zero of=/dev/null bs=64M count=20 2>/dev/null\n")
	if _, err := tools.run(t.Context(), command{tool: "ffmpeg", dir: dir}); err != nil {
		t.Errorf("below the limit: %v", err)
	}
}

func TestExitError_ReportsOutOfMemory(t *testing.T) {
	t.Parallel()
	err := exitErrorOf("ffmpeg", killedProcess(t), "", true)
	if !errors.Is(err, ErrMemory) || err.Error() != "ffmpeg was killed by the kernel: memory ran out on this host" {
		t.Errorf("error %v", err)
	}
	if err := exitErrorOf("ffmpeg", killedProcess(t), "", false); errors.Is(err, ErrMemory) {
		t.Errorf("error %v; want one without ErrMemory", err)
	}
	for _, words := range []string{"Cannot allocate memory", "x264 [error]: malloc of size 7332480 failed"} {
		_, err := Tools{FFmpeg: script(t, "echo '"+words+"' >&2; exit 1\n")}.run(t.Context(), command{tool: "ffmpeg"})
		if _, err := exitBySource(err); !errors.Is(err, ErrMemory) {
			t.Errorf("after %q: error %v; want ErrMemory", words, err)
		}
	}
}

func killedProcess(t *testing.T) error {
	t.Helper()
	err := exec.Command("sh", "-c", "kill -KILL $$").Run()
	if err == nil {
		t.Fatal("it was not killed")
	}
	return err
}
