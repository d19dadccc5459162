package media

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/encodertest"
)

// filmClip is long enough for a device to fail in its middle.
func filmClip(t *testing.T) string {
	t.Helper()
	return makeClip(t, "film.mkv", "-f lavfi -i testsrc2=s=320x240:r=25:d=9 -f lavfi -i sine=d=9"+h264+" -c:a aac -shortest")
}

// transcodeShort transcodes a short clip.
func transcodeShort(t *testing.T, tools Tools, clip string) *Output {
	t.Helper()
	info, err := tools.Probe(t.Context(), clip)
	if err != nil {
		t.Fatal(err)
	}
	out, err := tools.Transcode(t.Context(), clip, info, Ladder(info), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const shortClip = "-f lavfi -i testsrc2=s=320x240:r=25:d=1" + h264

// hardwareTools use a stand-in for a device, and remember its failures.
func hardwareTools(f encodertest.FFmpeg, encoders ...string) Tools {
	t := fastTools
	t.FFmpeg, t.Sandbox, t.Encoders, t.Cache = f.Path, SandboxOff, encoders, new(CapabilityCache)
	return t
}

func wantCalls(t *testing.T, f encodertest.FFmpeg, want ...string) {
	t.Helper()
	if got := f.Calls(t); !slices.Equal(got, want) {
		t.Errorf("the encoders called are %q; want %q", got, want)
	}
}

// The stand-in shows that the arguments of each encoder, given to libx264, make what libx264 makes.
func TestTranscode_MakesTheSameVideoWithEachHardwareEncoder(t *testing.T) {
	t.Parallel()
	film := filmClip(t)
	slides := makeClip(t, "slides.mkv", "-f lavfi -i testsrc2=s=320x240:r=1/5:d=20 -c:v libx264")
	for _, source := range []string{film, slides} {
		want := publish(t, source)
		for _, e := range hardwareEncoders {
			f := encodertest.New(t)
			got := publishWith(t, hardwareTools(f, e.name), source)
			wantCalls(t, f, e.name)
			o, w := got.out, want.out
			if o.Encoder != e.name || o.FailedEncoder != "" || len(o.Warnings) > 0 || o.DecodeErrors > 0 {
				t.Errorf("%s: the output is %+v", e.name, o)
			}
			if o.Duration != w.Duration || o.Expected != w.Expected || o.Video[0].Segments != w.Video[0].Segments ||
				o.Video[0].Codecs != w.Video[0].Codecs {
				t.Errorf("%s: the output is %+v; want %+v", e.name, o, w)
			}
		}
	}
}

func TestTranscode_UsesTheFirstEncoderThatItMay(t *testing.T) {
	t.Parallel()
	clip := makeClip(t, "a.mkv", shortClip)
	for list, want := range map[string]string{
		"": "libx264", "libx264": "libx264", "libx264,h264_nvenc": "libx264",
		"h264_qsv,h264_nvenc": "h264_qsv", "hardware": "h264_nvenc", "h264_vaapi,hardware": "h264_vaapi",
	} {
		f := encodertest.New(t)
		tools := hardwareTools(f, strings.FieldsFunc(list, func(r rune) bool { return r == ',' })...)
		if out := transcodeShort(t, tools, clip); out.Encoder != want {
			t.Errorf("%s: the encoder is %s", list, out.Encoder)
		}
		wantCalls(t, f, want)
	}
}

func TestTranscode_IgnoresEncodersWithoutDevice(t *testing.T) {
	t.Parallel()
	tools := fastTools
	tools.Encoders, tools.root = []string{"hardware"}, t.TempDir()
	if out := transcodeShort(t, tools, makeClip(t, "a.mkv", shortClip)); out.Encoder != "libx264" || len(out.Warnings) > 0 {
		t.Errorf("the output is %+v", out)
	}
}

func TestTranscode_UsesLibx264ForSizesThatHardwareRefuses(t *testing.T) {
	t.Parallel()
	f := encodertest.New(t)
	small := makeClip(t, "small.mkv", "-f lavfi -i testsrc2=s=128x96:r=25:d=1"+h264)
	if out := transcodeShort(t, hardwareTools(f, "hardware"), small); out.Encoder != "libx264" {
		t.Errorf("the output is %+v", out)
	}
}

func TestTranscode_RefusesUnknownEncoders(t *testing.T) {
	t.Parallel()
	tools, clip := fastTools, filmClip(t)
	info, err := tools.Probe(t.Context(), clip)
	if err != nil {
		t.Fatal(err)
	}
	tools.Encoders = []string{"h264_amf"}
	_, err = tools.Transcode(t.Context(), clip, info, Ladder(info), t.TempDir(), nil)
	if err == nil || !strings.Contains(err.Error(), `unknown encoder "h264_amf"`) {
		t.Errorf("got %v", err)
	}
}

func TestTranscode_BeginsAgainWithLibx264WhenTheDeviceFails(t *testing.T) {
	t.Parallel()
	film := filmClip(t)
	for mode, reason := range map[encodertest.Mode]string{
		encodertest.Start:  "OpenEncodeSessionEx failed: out of memory (10): (no details)",
		encodertest.Middle: "EncodePicture failed!: device does not exist (5): (no details)",
		encodertest.Crash:  "ffmpeg was ended by a signal (segmentation fault)",
		encodertest.Short:  "output does not match the source: it ends 6.0 s before the source",
		encodertest.Green:  "output does not match the source: the picture is not that of the source",
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := encodertest.New(t, mode)
			tools := hardwareTools(f, "h264_nvenc", "h264_vaapi")
			var steps []int64
			tools.Step = func(n int64) { steps = append(steps, n) }
			r := publishWith(t, tools, film)
			wantCalls(t, f, "h264_nvenc", "libx264")
			o := r.out
			if o.Encoder != "libx264" || o.FailedEncoder != "h264_nvenc" || o.DecodeErrors != 0 || len(o.Warnings) != 1 ||
				!strings.HasPrefix(o.Warnings[0], "h264_nvenc failed: ") || !strings.Contains(o.Warnings[0], reason) ||
				!strings.HasSuffix(o.Warnings[0], "; encoded with libx264") {
				t.Errorf("the output is %+v", o)
			}
			wantOnlyOutput(t, r)
			if !tools.Cache.isEncoderPaused("h264_nvenc") || tools.Cache.isEncoderPaused("h264_vaapi") {
				t.Error("the failed encoder is not paused, or another one is")
			}
		})
	}
}

// The installed ffmpeg fails to open what is no device, in the sandbox.
func TestTranscode_BeginsAgainInTheSandbox(t *testing.T) {
	t.Parallel()
	_, installed, err := Tools{}.codecs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	clip := makeClip(t, "a.mkv", shortClip)
	for _, name := range []string{"h264_nvenc", "h264_qsv", "h264_vaapi"} {
		if !slices.Contains(installed, name) {
			continue
		}
		tools := fastTools
		tools.Encoders, tools.root, tools.Cache = []string{name}, t.TempDir(), new(CapabilityCache)
		makeNode(t, tools.root, "renderD128", intelVendor)
		if err := os.WriteFile(filepath.Join(tools.root, "dev/nvidiactl"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		r := publishWith(t, tools, clip)
		if o := r.out; o.Encoder != "libx264" || o.FailedEncoder != name || len(o.Warnings) != 1 || o.DecodeErrors > 0 ||
			!tools.Cache.isEncoderPaused(name) {
			t.Errorf("%s: the output is %+v", name, o)
		}
		wantOnlyOutput(t, r)
	}
}

// wantOnlyOutput checks that every file belongs to the output.
func wantOnlyOutput(t *testing.T, r result) {
	t.Helper()
	known := map[string]bool{MasterName: true, ManifestName: true, StoryboardDir: true}
	for _, v := range append(slices.Clone(r.out.Video), r.out.Audio...) {
		known[v.Name] = true
		segments, err := filepath.Glob(filepath.Join(r.dir, v.Name, "*.m4s"))
		if err != nil || len(segments) != v.Segments {
			t.Errorf("%s has %d segments (%v); want %d", v.Name, len(segments), err, v.Segments)
		}
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !known[e.Name()] {
			t.Errorf("there is a file %s", e.Name())
		}
	}
}

func TestTranscode_DoesNotUseAFailedDeviceForSomeMinutes(t *testing.T) {
	t.Parallel()
	clip := makeClip(t, "a.mkv", shortClip)
	f := encodertest.New(t, encodertest.Start, encodertest.OK)
	tools := hardwareTools(f, "h264_nvenc")
	for i, want := range []string{"libx264", "libx264", "h264_nvenc"} {
		if i == 2 { // the pause is over
			tools.Cache.pausedUntil.Store("h264_nvenc", time.Now())
		}
		if out := transcodeShort(t, tools, clip); out.Encoder != want || (len(out.Warnings) > 0) != (i == 0) {
			t.Errorf("transcode %d: the output is %+v", i+1, out)
		}
	}
	wantCalls(t, f, "h264_nvenc", "libx264", "libx264", "h264_nvenc")
}

func TestCapabilityCache_PausesAnEncoderForTenMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := new(CapabilityCache)
		c.pauseEncoder("h264_qsv")
		time.Sleep(10*time.Minute - time.Nanosecond)
		if !c.isEncoderPaused("h264_qsv") || c.isEncoderPaused("h264_vaapi") {
			t.Error("the wrong encoder is paused")
		}
		time.Sleep(time.Nanosecond)
		if c.isEncoderPaused("h264_qsv") {
			t.Error("it is still paused")
		}
	})
}

func TestTranscode_BlamesTheSourceAsBefore(t *testing.T) {
	t.Parallel()
	clip := makeClip(t, "film.mkv", "-f lavfi -i testsrc2=s=320x240:r=25:d=4"+h264)
	info, err := fastTools.Probe(t.Context(), clip)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(clip)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(text) / 8; i < len(text); i++ { // since it was probed
		text[i] = 0
	}
	if err := os.WriteFile(clip, text, 0o644); err != nil {
		t.Fatal(err)
	}
	_, want := fastTools.Transcode(t.Context(), clip, info, Ladder(info), t.TempDir(), nil)
	for _, mode := range []encodertest.Mode{encodertest.OK, encodertest.Start} {
		tools := hardwareTools(encodertest.New(t, mode), "h264_nvenc")
		_, got := tools.Transcode(t.Context(), clip, info, Ladder(info), t.TempDir(), nil)
		if _, ok := errors.AsType[*RejectedError](got); !ok || got.Error() != want.Error() {
			t.Errorf("%s: the error is %v; want %v", mode, got, want)
		}
		if tools.Cache.isEncoderPaused("h264_nvenc") {
			t.Errorf("%s: the device is blamed", mode)
		}
	}
}

// The source has changed since it was probed, so that no encoder's output matches what the probe has found.
func TestTranscode_DoesNotBlameTheDeviceForAMismatchOfAllEncoders(t *testing.T) {
	t.Parallel()
	clip := filmClip(t)
	info, err := fastTools.Probe(t.Context(), clip)
	if err != nil {
		t.Fatal(err)
	}
	info.Video.Duration, info.Duration = 3, 3
	f := encodertest.New(t)
	tools := hardwareTools(f, "h264_nvenc")
	_, err = tools.Transcode(t.Context(), clip, info, Ladder(info), t.TempDir(), nil)
	if !errors.Is(err, ErrMismatch) || tools.Cache.isEncoderPaused("h264_nvenc") {
		t.Fatalf("the error is %v", err)
	}
	wantCalls(t, f, "h264_nvenc", "libx264")
}

func TestTranscode_DoesNotBlameTheDeviceForAStallOrACancel(t *testing.T) {
	t.Parallel()
	clip := filmClip(t)
	info, err := fastTools.Probe(t.Context(), clip)
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("cancelled by a test")
	for name, want := range map[string]error{"stall": ErrStalled, "cancel": why} {
		f := encodertest.New(t, encodertest.Stall)
		tools := hardwareTools(f, "h264_nvenc")
		ctx, cancel := context.WithCancelCause(t.Context())
		if name == "cancel" {
			go func() {
				for len(f.Calls(t)) == 0 && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel(why)
			}()
		} else {
			tools.Stall = time.Second
		}
		_, err := tools.Transcode(ctx, clip, info, Ladder(info), t.TempDir(), nil)
		cancel(nil)
		if !errors.Is(err, want) || tools.Cache.isEncoderPaused("h264_nvenc") {
			t.Errorf("%s: the error is %v", name, err)
		}
		wantCalls(t, f, "h264_nvenc")
	}
}

func TestTranscode_DoesNotBlameTheDeviceForASourceThatDoesNotArrive(t *testing.T) {
	t.Parallel()
	clip := filmClip(t)
	info, err := fastTools.Probe(t.Context(), clip)
	if err != nil {
		t.Fatal(err)
	}
	for failure, want := range map[error]error{errors.New("the service is down"): ErrInput, errNoAnswer: ErrInputStalled} {
		f := encodertest.New(t)
		tools, in, path := serveFile(t, hardwareTools(f, "h264_nvenc"), clip)
		tools.Stall = 10 * time.Second // half of it is enough for a busy machine to begin reading
		in.fail = func(offset int64) error {
			if offset < in.size/2 {
				return nil
			}
			return failure
		}
		_, err := tools.Transcode(t.Context(), path, info, Ladder(info), t.TempDir(), nil)
		if !errors.Is(err, want) || tools.Cache.isEncoderPaused("h264_nvenc") {
			t.Errorf("%v: the error is %v; the encoder is paused: %v", failure, err, tools.Cache.isEncoderPaused("h264_nvenc"))
		}
		wantCalls(t, f, "h264_nvenc")
	}
}

func TestTranscode_ReportsWhichEncoderWorks(t *testing.T) {
	t.Parallel()
	clip := filmClip(t)
	info, err := fastTools.Probe(t.Context(), clip)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []string
	tools := hardwareTools(encodertest.New(t, encodertest.Middle), "h264_nvenc")
	_, err = tools.Transcode(t.Context(), clip, info, Ladder(info), t.TempDir(), func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		if text := p.Encoder + " after " + p.FailedEncoder; len(seen) == 0 || seen[len(seen)-1] != text {
			seen = append(seen, text)
		}
	})
	if err != nil || !slices.Equal(seen, []string{"h264_nvenc after ", "libx264 after h264_nvenc"}) {
		t.Errorf("the encoders reported are %q, %v", seen, err)
	}
}
