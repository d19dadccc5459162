package media

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/media/sandbox"
)

// smallDisk mounts a disk of one megabyte.
func smallDisk(t *testing.T, flags uintptr) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, "size=1m"); err != nil {
		t.Skipf("no disk can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// diskReservedForRoot mounts a disk that reserves a fifth of its space for root.
func diskReservedForRoot(t *testing.T) string {
	t.Helper()
	if !sandbox.CanChangeUser(DefaultUser) {
		t.Skip("this process cannot start programs as another user")
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 32<<20)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "20", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no such disk can be mounted here: %v: %s", err, out)
		}
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// The child writes as another user, for whom the disk is full earlier than for root.
func TestRun_DetectsDiskFullForUnprivileged(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(diskReservedForRoot(t), "own")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Tools{FFmpeg: script(t, "head -c 64M /dev/zero >film; exit 0\n"), Sandbox: SandboxRequire}.
		run(t.Context(), command{tool: "ffmpeg", dir: dir})
	if !errors.Is(err, ErrNoSpace) {
		t.Errorf("error %v; want ErrNoSpace", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "roots"), make([]byte, 1<<20), 0o600); err != nil {
		t.Errorf("root has no space either, so the test shows nothing: %v", err)
	}
}

// Space may have been freed before the check.
func TestTranscode_DoesNotRejectAfterUnconfirmedDiskError(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=64x64:r=10:d=1 -f lavfi -i sine=d=1 "+h264)
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	real, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Fatal(err)
	}
	const noSpace = "echo '[out#1/framecrc @ 0x55] [error] write: No space left on device' >&2\n"
	for name, code := range map[string]string{"code 0": "0", "code 1": "1"} {
		tools := fastTools
		// Only commands with an output directory are replaced.
		tools.FFmpeg = script(t, "case \"$*\" in *.tap*|*'-f mjpeg'*) "+noSpace+": >decoded.tap; : >shown.tap; exit "+code+
			";; esac\nexec "+real+" \"$@\"\n")
		_, err := tools.Transcode(t.Context(), src, info, Ladder(info), t.TempDir(), nil)
		rejected := (*RejectedError)(nil)
		if err == nil || errors.As(err, &rejected) || errors.Is(err, ErrNoSpace) ||
			!strings.Contains(err.Error(), "not one frame") {
			t.Errorf("%s: transcode: %v; want an ordinary error", name, err)
		}
		err = tools.Poster(t.Context(), src, info, filepath.Join(t.TempDir(), "poster.jpg"))
		if err == nil || errors.Is(err, ErrNoPicture) || errors.Is(err, ErrNoSpace) {
			t.Errorf("%s: poster: %v; want an ordinary error", name, err)
		}
	}
}

func TestRun_ConfirmsDiskErrors(t *testing.T) {
	t.Parallel()
	full := smallDisk(t, 0)
	if err := os.WriteFile(filepath.Join(full, "film"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly, roomy := smallDisk(t, syscall.MS_RDONLY), t.TempDir()
	const noSpace = "echo '[hls @ 0x55] [error] write: No space left on device' >&2; "
	for _, c := range []struct {
		name, dir, script string
		want              error
		exit              bool // a failing exit code is reported as such
	}{
		{"full, code 0", full, noSpace + "exit 0", ErrNoSpace, false},
		{"full, quota, code 1", full, "echo 'Disk quota exceeded' >&2; exit 1", ErrNoSpace, false},
		{
			"read-only, code 0", readOnly, "echo '[error] Failed to open: Read-only file system' >&2; exit 0", syscall.EROFS,
			false,
		},
		{"roomy, code 0", roomy, noSpace + "exit 0", nil, false},
		{"roomy, code 1", roomy, noSpace + "exit 1", nil, true},
		{"nothing is written, code 1", "", noSpace + "exit 1", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Tools{FFmpeg: script(t, c.script+"\n")}.run(t.Context(), command{tool: "ffmpeg", dir: c.dir})
			_, exit := errors.AsType[*exitError](err)
			if exit != c.exit || !exit && !errors.Is(err, c.want) || exit && errors.Is(err, ErrNoSpace) {
				t.Errorf("error %v; want %v", err, c.want)
			}
			for _, dir := range []string{full, roomy} {
				if left, _ := filepath.Glob(filepath.Join(dir, ".space-*")); len(left) > 0 {
					t.Errorf("%s is left over", left)
				}
			}
		})
	}
}
