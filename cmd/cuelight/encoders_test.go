package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/encodertest"
)

// withHardware gives the program a stand-in for a graphics card.
func (p *workDir) withHardware(modes ...encodertest.Mode) encodertest.FFmpeg {
	f := encodertest.New(p.t, modes...)
	p.env = append(p.env, "CUELIGHT_FFMPEG="+f.Path, "CUELIGHT_SANDBOX=off", "CUELIGHT_ENCODERS=h264_nvenc,h264_vaapi")
	return f
}

func TestRun_EncodesWithLibx264WhenTheDeviceFails(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	f := p.withHardware(encodertest.Start)
	// Hardware encoders refuse the size of the other clips.
	film := exec.Command("ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc2=s=320x240:d=1", p.path("clip.mp4"))
	if out, err := film.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ran := p.run(0, "run", "--json", "clip.mp4")
	task := decode[reported](ran)[0].TaskID
	const warning = "h264_nvenc failed: OpenEncodeSessionEx failed: out of memory (10)"
	if !strings.Contains(ran.stderr(), "clip.mp4: warning: "+warning) {
		t.Errorf("it prints\n%s", ran.stderr())
	}
	if got := f.Calls(t); !slices.Equal(got, []string{"h264_nvenc", "libx264"}) {
		t.Errorf("the encoders called are %q; a run must not try them before", got)
	}
	text := p.run(0, "show", task.String()).stdout.String()
	if !strings.Contains(text, "warning    "+warning) ||
		!strings.Contains(text, "transcode, attempt 1: completed with libx264 after") ||
		!strings.Contains(text, "    not divided: it is shorter than two chunks\n") {
		t.Errorf("shown: %s", text)
	}
}

func TestServe_PublishesWhatItsHostHas(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.withHardware()
	r := p.start("serve", "--label", "gpu,rack-2")
	r.waitForOutput(`"msg":"working"`, 1)
	workers := decode[workerJSON](p.run(0, "workers", "--json"))
	r.signal(syscall.SIGTERM)
	r.end(0)
	var found struct {
		DataDirID        string `json:"data_dir_id"`
		Labels, Encoders []string
		Filters          []string
		MemoryBytes      int64 `json:"memory_bytes"`
	}
	if len(workers) != 1 || json.Unmarshal(workers[0].Capabilities, &found) != nil {
		t.Fatalf("the workers are %+v", workers)
	}
	if found.DataDirID == "" || !slices.Equal(found.Labels, []string{"gpu", "rack-2"}) || found.MemoryBytes < 1<<28 ||
		!slices.Contains(found.Filters, "bwdif") || !slices.Contains(found.Encoders, "libx264") ||
		!slices.Contains(found.Encoders, "h264_nvenc") || !slices.Contains(found.Encoders, "h264_vaapi") ||
		slices.Contains(found.Encoders, "h264_qsv") {
		t.Errorf("the capabilities are %s", workers[0].Capabilities)
	}
}

func TestServe_LogsWhyAnEncoderDoesNotWork(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.withHardware(encodertest.Start)
	r := p.start("serve", "--encoders", "h264_qsv")
	r.waitForOutput(`"msg":"working"`, 1)
	r.signal(syscall.SIGTERM)
	r.end(0)
	if text := r.stderr(); !strings.Contains(text, `"msg":"encoder does not work","encoder":"h264_qsv","error":"OpenEncodeSessionEx failed`) ||
		strings.Contains(text, "hevc_qsv") {
		t.Errorf("it logged\n%s", text)
	}
}

func TestDoctor_TriesEncoders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode     encodertest.Mode
		encoders string
		want     []string
	}{
		"working": {encodertest.OK, "h264_nvenc", []string{
			"ok h264_nvenc works", "ok h264_qsv works; --encoders h264_qsv uses it",
			"ok h264_vaapi works; --encoders h264_vaapi uses it",
		}},
		"failing": {encodertest.Start, "h264_vaapi", []string{
			"ok h264_nvenc, which --encoders does not have, would not work: OpenEncodeSessionEx failed: out of memory (10): (no details)",
			"ok h264_qsv, which --encoders does not have, would not work: OpenEncodeSessionEx failed: out of memory (10): (no details)",
			"warning h264_vaapi does not work, so libx264 encodes: OpenEncodeSessionEx failed: out of memory (10): (no details)",
		}},
		"unknown": {encodertest.OK, "h264_amf", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &doctor{c: &cli{}, o: *newWorkOptions()}
			d.o.ffmpeg, d.o.sandbox, d.o.mediaUser = encodertest.New(t, c.mode).Path, "off", "60817"
			d.o.encoders = strings.Split(c.encoders, ",")
			var got []string
			for _, f := range d.tryEncoders(t.Context()) {
				got = append(got, f.Status+" "+f.Detail)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %q; want %q", got, c.want)
			}
		})
	}
}

func TestDoctor_WarnsOfEncodersWithoutDevice(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	for _, pattern := range []string{"/dev/dri/renderD*", "/dev/nvidiactl"} {
		if found, err := filepath.Glob(pattern); err != nil || len(found) > 0 {
			t.Skipf("there are devices here: %q, %v", found, err)
		}
	}
	d := &doctor{c: &cli{}, o: *newWorkOptions()}
	d.o.ffmpeg, d.o.sandbox, d.o.mediaUser = "ffmpeg", "auto", "60817"
	for list, want := range map[string]int{"libx264": 0, "hardware": 1, "h264_nvenc,h264_vaapi,libx264": 2} {
		d.o.encoders = strings.Split(list, ",")
		n := 0
		for _, f := range d.tryEncoders(t.Context()) {
			if strings.Contains(f.Detail, "there is no device") && f.Status == "warning" {
				n++
			} else {
				t.Errorf("%s: found %s: %s", list, f.Status, f.Detail)
			}
		}
		if n != want {
			t.Errorf("%s: %d warnings", list, n)
		}
	}
}

func TestEncoderFlag_RefusesUnknownNames(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	for _, command := range []string{"serve", "run clip.mp4", "work --server https://media.example --key-file k"} {
		text := p.run(2, append(strings.Fields(command), "--encoders", "h264_amf")...).stderr()
		if !strings.Contains(text, `--encoders: unknown encoder "h264_amf"; allowed: libx264, h264_nvenc, h264_qsv, h264_vaapi, hardware`) {
			t.Errorf("%s: %s", command, text)
		}
	}
}
