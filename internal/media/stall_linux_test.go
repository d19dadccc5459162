package media

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWatch_FrozenChildIsStalled(t *testing.T) {
	t.Parallel()
	tools := Tools{FFmpeg: script(t, "kill -STOP $$\n"), Stall: 500 * time.Millisecond}
	if _, err := tools.run(t.Context(), command{tool: "ffmpeg"}); !errors.Is(err, ErrStalled) {
		t.Errorf("error %v; want ErrStalled", err)
	}
}

func TestWatch_KeepsSlowSilentChild(t *testing.T) {
	t.Parallel()
	const slowly = `i=0
while [ $i -lt 12 ]; do
	j=0; while [ $j -lt 20000 ]; do j=$((j+1)); done
	sleep 0.25; i=$((i+1))
done
`
	tools := Tools{FFmpeg: script(t, slowly), Stall: time.Second}
	began := time.Now()
	for _, quiet := range []bool{false, true} {
		if _, err := tools.run(t.Context(), command{tool: "ffmpeg", noProgress: quiet}); err != nil {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	}
}

// Processes of normal priority occupy one processor, and a child of the lowest
// priority may use only that one.
func TestWatch_StarvedChildIsNotStalled(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"taskset", "chrt"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s", tool)
		}
	}
	cpu := oneProcessor(t)
	for range 8 {
		// Each has its own session, because the kernel may divide processors by session.
		other := exec.Command("taskset", "-c", fmt.Sprint(cpu), "sh", "-c", "while :; do :; done")
		other.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = other.Process.Kill()
			_ = other.Wait()
		}()
	}
	text := fmt.Sprintf("exec taskset -c %d chrt --idle 0 sh -c 'while :; do :; done'\n", cpu)
	tools := Tools{FFmpeg: script(t, text), Stall: 300 * time.Millisecond, Nice: 19}
	began := time.Now()
	_, err := tools.run(t.Context(), command{tool: "ffmpeg"})
	if !errors.Is(err, ErrStarved) || errors.Is(err, ErrStalled) {
		t.Errorf("after %v: %v; want ErrStarved", time.Since(began), err)
	}
}

func oneProcessor(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for i := range 1024 {
		if set.IsSet(i) {
			return i
		}
	}
	t.Fatal("there is no processor")
	return 0
}
