package media

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/encodertest"
)

// results are the trials as text: names, and failures in parentheses.
func results(t *testing.T, tools Tools) string {
	t.Helper()
	trials, err := tools.TryEncoders(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, trial := range trials {
		text := trial.Name
		if trial.Failure != "" {
			text += " (" + trial.Failure + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

func TestTryEncoders_TriesSoftware(t *testing.T) {
	t.Parallel()
	if got := results(t, Tools{}); got != "libx264" && !strings.HasPrefix(got, "libx264, ") || strings.Contains(got, "(") {
		t.Errorf("the encoders are %s", got)
	}
	// A list is not believed.
	broken := script(t, `case "$*" in
*-codecs*) echo ' DEV.LS h264  H.264 (decoders: h264 ) (encoders: libx264 libopenh264 )'
	echo ' DEV.L. hevc  H.265 (decoders: hevc ) (encoders: libx265 )';;
*) echo 'x265 cannot be loaded' >&2; exit 1;;
esac
`)
	tools := Tools{FFmpeg: broken, Sandbox: SandboxOff, Cache: new(CapabilityCache)}
	if got, want := results(t, tools), "libx264 (x265 cannot be loaded), libx265 (x265 cannot be loaded)"; got != want {
		t.Errorf("the encoders are %s, want %s", got, want)
	}
}

func TestTryEncoders_TriesHardwareThatIsWanted(t *testing.T) {
	t.Parallel()
	tools := Tools{FFmpeg: encodertest.New(t).Path, Sandbox: SandboxOff}
	for list, want := range map[string]string{
		"":           "",
		"libx264":    "",
		"h264_vaapi": "h264_vaapi, hevc_vaapi (Unknown encoder 'hevc_vaapi')",
		"h264_qsv,h264_nvenc": "h264_qsv, h264_nvenc, hevc_nvenc (Unknown encoder 'hevc_nvenc'), " +
			"av1_nvenc (Unknown encoder 'av1_nvenc'), hevc_qsv (Unknown encoder 'hevc_qsv')",
	} {
		tools.Encoders = strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
		if got := hardware(results(t, tools)); got != want {
			t.Errorf("%s: the trials are %s; want %s", list, got, want)
		}
	}
}

// hardware returns the results of the hardware encoders.
func hardware(results string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(results, ", "), func(s string) bool {
		return strings.HasPrefix(s, "lib")
	}), ", ")
}

func TestTryEncoders_LeavesOutHardwareWithoutDevice(t *testing.T) {
	t.Parallel()
	tools := Tools{Encoders: []string{"hardware"}, root: t.TempDir()}
	if got := results(t, tools); strings.Contains(got, "h264_") {
		t.Errorf("there is no device; the encoders are %s", got)
	}
	// A file in place of the node: the encoder is tried, and fails.
	makeNode(t, tools.root, "renderD128", intelVendor)
	got := results(t, tools)
	if !strings.Contains(got, "h264_vaapi (") || !strings.Contains(got, "h264_qsv (") || strings.Contains(got, "nvenc") {
		t.Errorf("the encoders are %s", got)
	}
}

func TestTryEncoders_SaysThatAPermissionIsMissing(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root has all permissions")
	}
	tools := Tools{Encoders: []string{"h264_vaapi"}, root: t.TempDir()}
	node := makeNode(t, tools.root, "renderD128", intelVendor)
	if err := os.Chmod(node, 0); err != nil {
		t.Fatal(err)
	}
	if got := results(t, tools); !strings.Contains(got, "h264_vaapi (no permission for "+node+")") {
		t.Errorf("the encoders are %s", got)
	}
}

func TestTryEncoders_PausesThoseThatFail(t *testing.T) {
	t.Parallel()
	f := encodertest.New(t, encodertest.Start, encodertest.OK)
	tools := Tools{FFmpeg: f.Path, Sandbox: SandboxOff, Encoders: []string{"h264_nvenc"}, Cache: new(CapabilityCache)}
	got := results(t, tools)
	if !strings.Contains(got, "h264_nvenc (OpenEncodeSessionEx failed: out of memory (10): (no details))") ||
		!tools.Cache.isEncoderPaused("h264_nvenc") {
		t.Errorf("the encoders are %s", got)
	}
	if got := hardware(results(t, tools)); !strings.HasPrefix(got, "h264_nvenc, ") || tools.Cache.isEncoderPaused("h264_nvenc") {
		t.Errorf("it works now; the encoders are %s", got)
	}
}

func TestTryEncoders_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stopping")
	cancel(why)
	if _, err := (Tools{}).TryEncoders(ctx); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// makeNode makes files in place of a card's, below root.
func makeNode(t *testing.T, root, name, vendor string) string {
	t.Helper()
	card := filepath.Join(root, "sys/class/drm", name, "device")
	node := filepath.Join(root, "dev/dri", name)
	for _, dir := range []string{card, filepath.Dir(node)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{node: "", filepath.Join(card, "vendor"): vendor + "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return node
}

func TestFindDevice_ChoosesTheCardOfTheEncoder(t *testing.T) {
	t.Parallel()
	tools := Tools{root: t.TempDir()}
	const amdVendor = "0x1002"
	for _, kind := range []deviceKind{nvidiaDevice, intelDevice, renderDevice} {
		if d := tools.findDevice(kind); d != nil {
			t.Errorf("%s: found %+v", kind, d)
		}
	}
	makeNode(t, tools.root, "renderD128", nvidiaVendor)
	makeNode(t, tools.root, "renderD129", amdVendor)
	makeNode(t, tools.root, "renderD130", intelVendor)
	for _, name := range []string{"nvidiactl", "nvidia0", "nvidia-uvm"} {
		if err := os.WriteFile(filepath.Join(tools.root, "dev", name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for kind, want := range map[deviceKind]string{
		nvidiaDevice: "/dev/nvidia-uvm /dev/nvidia0 /dev/nvidiactl",
		intelDevice:  "/dev/dri/renderD130", renderDevice: "/dev/dri/renderD129",
	} {
		d := tools.findDevice(kind)
		if d == nil {
			t.Errorf("%s: found none", kind)
			continue
		}
		if got := strings.ReplaceAll(strings.Join(d.nodes, " "), tools.root, ""); got != want {
			t.Errorf("%s: the nodes are %s; want %s", kind, got, want)
		}
	}
}
