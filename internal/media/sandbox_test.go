package media

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/media/sandbox"
)

// If Landlock does not block links, later steps must not follow them.
func TestSandbox_DoesNotFollowLinkInOutput(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(dir string) error{
		"link":   func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "seg-00001.m4s")) },
		"pipe":   func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "index.m3u8"), 0o644) },
		"setuid": func(dir string) error { return makeSetuid(filepath.Join(dir, "a")) },
	} {
		k := &sandboxGrant{dir: t.TempDir(), chowned: name == "link"}
		sub := filepath.Join(k.dir, "720p")
		err := errors.Join(os.Mkdir(sub, 0o755), os.WriteFile(filepath.Join(sub, "init.mp4"), nil, 0o644), leave(sub))
		if err != nil {
			t.Fatal(err)
		}
		if err := k.release(); !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: %v; want ErrMismatch", name, err)
		}
	}
}

func makeSetuid(file string) error {
	return errors.Join(os.WriteFile(file, nil, 0o755), os.Chmod(file, 0o755|fs.ModeSetuid))
}

func TestSandbox_ReturnsDirectoryToParent(t *testing.T) {
	t.Parallel()
	if !sandbox.CanChangeUser(DefaultUser) {
		t.Skip("this process cannot start programs as another user")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	owner := &limitedBuffer{limit: 1 << 10}
	_, err := Tools{FFmpeg: script(t, "id -u; id -g; echo x > sub/file\n"), Sandbox: SandboxRequire}.
		run(t.Context(), command{tool: "ffmpeg", dir: dir, stdout: owner})
	if err != nil || owner.String() != "60817\n60817\n" {
		t.Errorf("%v; it ran as %q", err, owner.String())
	}
	wantOwnedByProcess(t, dir, "", "sub", "sub/file")
}

// A file server that maps root to nobody, a file system without owners, and an
// immutable file do not permit changing the owner.
func TestSandbox_WorksWithoutChown(t *testing.T) {
	t.Parallel()
	if !sandbox.CanChangeUser(DefaultUser) {
		t.Skip("this process cannot start programs as another user")
	}
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=64x64:r=10:d=1 "+h264)
	dir := t.TempDir()
	fixed := filepath.Join(dir, "fixed")
	if err := os.WriteFile(fixed, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chattr", "+i", fixed).CombinedOutput(); err != nil {
		t.Skipf("no file can be made unchangeable here: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("chattr", "-i", fixed).Run() })

	owner := &limitedBuffer{limit: 1 << 10}
	c := command{tool: "ffmpeg", args: []string{"file:" + src}, dir: dir, source: src, stdout: owner}
	tools := Tools{FFmpeg: script(t, "id -u; head -c 1 \"${1#file:}\" >file\n")}
	if out, err := tools.run(t.Context(), c); err != nil || owner.String() != "0\n" {
		t.Errorf("%v; it ran as %q and printed %q", err, owner.String(), out.tail)
	}
	if st, err := os.Stat(filepath.Join(dir, "file")); err != nil || st.Size() != 1 {
		t.Errorf("the written file: %v, %v", st, err)
	}
	wantOwnedByProcess(t, dir, "", "fixed", "file")

	tools.FFmpeg = script(t, "exit 0\n")
	if err := syscall.Mkfifo(filepath.Join(dir, "left"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := tools.run(t.Context(), c); !errors.Is(err, ErrMismatch) {
		t.Errorf("with a pipe in the output: %v; want ErrMismatch", err)
	}
	tools.Sandbox = SandboxRequire
	if _, err := tools.run(t.Context(), c); !errors.Is(err, ErrSandbox) {
		t.Errorf("with SandboxRequire: %v; want ErrSandbox", err)
	}
	wantOwnedByProcess(t, dir, "", "fixed")
}

// wantOwnedByProcess requires that files in dir belong to this process.
func wantOwnedByProcess(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; int(uid) != os.Geteuid() {
			t.Errorf("%q belongs to %d", name, uid)
		}
	}
}

func TestSandbox_DoesNotGrantRootOnlySource(t *testing.T) {
	t.Parallel()
	if !sandbox.CanChangeUser(DefaultUser) {
		t.Skip("this process cannot start programs as another user")
	}
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=64x64:r=10:d=1 "+h264)
	if err := os.Chmod(src, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fastTools.Probe(t.Context(), src); err != nil {
		t.Errorf("with SandboxAuto: %v", err)
	}
	strict := fastTools
	strict.Sandbox = SandboxRequire
	if _, err := strict.Probe(t.Context(), src); !errors.Is(err, ErrSandbox) || !errors.Is(err, ErrSourceNotReadable) {
		t.Errorf("with SandboxRequire: %v; want ErrSandbox and ErrSourceNotReadable", err)
	}
	if info, err := os.Stat(src); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the source's mode is %v (%v)", info.Mode(), err)
	}
}

func TestSandbox_ReportsProgramThatCannotStart(t *testing.T) {
	t.Parallel()
	if sandbox.Check() != nil {
		t.Skip("this host offers no confinement")
	}
	broken := filepath.Join(t.TempDir(), "ffmpeg")
	if err := os.WriteFile(broken, []byte("\x7fELF but no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Tools{FFmpeg: broken}.Version(t.Context())
	if !errors.Is(err, ErrSandbox) || !strings.Contains(err.Error(), "exec format error") {
		t.Errorf("%v; want ErrSandbox", err)
	}
}

// A file that changes after the probe, or that looks different to each demuxer, opens
// no codec that the probe did not find.
func TestProbedInputOptions_AllowOnlyProbedCodecs(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=64x64:r=10:d=1 "+h264)
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]string{
		"another codec":     "-f lavfi -i testsrc2=s=64x64:r=10:d=1 -c:v mpeg4 -f mp4",
		"another container": "-f lavfi -i testsrc2=s=64x64:r=10:d=1 -f matroska " + h264,
	} {
		other := makeClip(t, "a.mp4", args)
		if _, err := fastTools.Probe(t.Context(), other); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := fastTools.Transcode(t.Context(), other, info, Ladder(info), t.TempDir(), nil); err == nil {
			t.Errorf("%s was decoded", name)
		}
	}
}

func TestParseCoders_ReadsList(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		" DEV.L. av1    Alliance (decoders: libdav1d av1 av1_cuvid ) (encoders: libaom-av1 )": "libdav1d av1 av1_cuvid",
		" DEV..S png    PNG (Portable Network Graphics) image":                                "png",
		" DEVIL. dnxhd  VC3/DNxHD (encoders: dnxhd )":                                         "dnxhd",
	} {
		if got := strings.Join(parseCoders(strings.Fields(line)[1], line, "decoders"), " "); got != want {
			t.Errorf("%q: %q; want %q", line, got, want)
		}
	}
}

// A device of the kernel stands in for a card: it is a file that only its group may open.
func TestSandbox_OpensADeviceOnlyForACommandThatNeedsIt(t *testing.T) {
	t.Parallel()
	if !sandbox.CanChangeUser(DefaultUser) {
		t.Skip("this process cannot start programs as another user")
	}
	const group = 60818
	dir := t.TempDir()
	openParents(t, dir)
	node, about := filepath.Join(dir, "renderD128"), filepath.Join(dir, "vendor")
	if out, err := exec.Command("mknod", "-m", "660", node, "c", "1", "5").CombinedOutput(); err != nil {
		t.Skipf("no device can be made here: %v: %s", err, out)
	}
	err := errors.Join(os.Chown(node, 0, group), os.WriteFile(about, []byte("0x8086\n"), 0o644),
		os.WriteFile(node+".other", []byte("another device"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if f, err := os.OpenFile(node, os.O_RDWR, 0); err != nil {
		t.Skipf("the file system has no devices: %v", err)
	} else {
		f.Close()
	}
	tool := Tools{Sandbox: SandboxRequire, FFmpeg: script(t,
		"cat $2 && exec 3<>$1 && head -c 1 <&3 | od -An -tx1 && ls ${1%/*} && echo a >/proc/$$/task/$$/comm && ! cat $1.other\n")}
	out := &limitedBuffer{limit: 1 << 10}
	c := command{tool: "ffmpeg", args: []string{node, about}, stdout: out}
	if _, err := tool.run(t.Context(), c); err == nil {
		t.Errorf("without the device: it printed %q", out.String())
	}
	c.device = &device{kind: renderDevice, nodes: []string{node}, readable: []string{about}}
	if said, err := tool.run(t.Context(), c); err != nil || out.String() != "0x8086\n 00\nrenderD128\nrenderD128.other\nvendor\n" {
		t.Errorf("with the device: %v: it printed %q and %q", err, out.String(), said.tail)
	}
	if err := os.Chown(node, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := tool.run(t.Context(), c); err == nil || tool.closedNode(c.device) != node {
		t.Errorf("a node of the group of root: %v; closed is %q", err, tool.closedNode(c.device))
	}
}

// openParents lets all users enter a directory of a test.
func openParents(t *testing.T, dir string) {
	t.Helper()
	for ; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
