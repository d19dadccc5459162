package media

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/media/sandbox"
)

// countedInput is a file that is read as an input.
type countedInput struct {
	*os.File
	size  int64
	bytes atomic.Int64
	fail  func(offset int64) error // may be nil
}

// serveFile returns tools that read a file as an input that has another path.
func serveFile(t *testing.T, tools Tools, file string) (Tools, *countedInput, string) {
	t.Helper()
	if err := tools.CheckServe(); err != nil {
		t.Skip(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	in := &countedInput{File: f, size: info.Size()}
	path := filepath.Join(t.TempDir(), "elsewhere", "source"+filepath.Ext(file))
	tools.Source = &ServedSource{Path: path, Input: in}
	return tools, in, path
}

func (c *countedInput) Size() int64 { return c.size }

func (c *countedInput) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	if c.fail != nil {
		if err := c.fail(offset); err != nil {
			if errors.Is(err, errNoAnswer) {
				<-ctx.Done()
			}
			return 0, err
		}
	}
	n, err := c.File.ReadAt(p, offset)
	c.bytes.Add(int64(n))
	return n, err
}

var errNoAnswer = errors.New("no answer")

func TestServedSource_GivesTheSameAsTheFile(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=320x180:r=25:d=4 -f lavfi -i sine=d=4 -c:a aac "+h264)
	for name, tools := range map[string]Tools{
		"sandbox": {Preset: "ultrafast"}, "no sandbox": {Preset: "ultrafast", Sandbox: SandboxOff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := publishWith(t, tools, src)
			served, in, path := serveFile(t, tools, src)
			dir := t.TempDir()
			out, err := served.Transcode(t.Context(), path, want.info, Ladder(want.info), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := served.Check(t.Context(), want.info, dir, out); err != nil {
				t.Error(err)
			}
			if in.bytes.Load() == 0 {
				t.Error("nothing was read")
			}
			if err := served.Poster(t.Context(), path, want.info, filepath.Join(dir, "poster.jpg")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestServedSource_IsReadInPartsForAPoster(t *testing.T) {
	t.Parallel()
	// The index is at the end, and random pictures cannot be compressed.
	src := makeClip(t, "a.mp4", "-f lavfi -i nullsrc=s=320x180:r=25:d=60,geq=random(1)*255:128:128 "+
		"-c:v libx264 -preset ultrafast -g 25 -b:v 8M")
	info, err := Tools{}.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	served, in, path := serveFile(t, Tools{}, src)
	if err := served.Poster(t.Context(), path, info, filepath.Join(t.TempDir(), "poster.jpg")); err != nil {
		t.Fatal(err)
	}
	if read := in.bytes.Load(); read > in.size/2 {
		t.Errorf("%d of %d bytes were read", read, in.size)
	}
}

// ffmpeg takes a failed read for the end of the file, and may succeed.
func TestServedSource_FailureIsNotTheEndOfTheSource(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.ts", "-f lavfi -i testsrc2=s=320x180:r=25:d=8 "+h264)
	info, err := Tools{}.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	down := errors.New("the service is down")
	for _, err := range []error{down, errNoAnswer} {
		served, in, path := serveFile(t, Tools{Preset: "ultrafast", Stall: 4 * time.Second}, src)
		in.fail = func(offset int64) error {
			if offset < in.size/2 {
				return nil
			}
			return err
		}
		want := err
		if err == errNoAnswer {
			want = ErrInputStalled
		}
		_, err := served.Transcode(t.Context(), path, info, Ladder(info), t.TempDir(), nil)
		if !errors.Is(err, want) {
			t.Errorf("transcode returned %v; want %v", err, want)
		}
		if err != nil && strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("the address is in %v", err)
		}
	}
}

func TestServedSource_HasAnAddressThatNobodyGuesses(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "a.mp4")
	if err := os.WriteFile(src, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	tools, _, path := serveFile(t, Tools{Sandbox: SandboxOff}, src)
	cmd := exec.Command("ffmpeg", input(path)...)
	s, address, err := tools.serveInput(cmd, &sandbox.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cmd.Args, " "); !strings.Contains(got, "-protocol_whitelist http,tcp ") || !strings.Contains(got, "-i "+address) {
		t.Errorf("the arguments are %s", got)
	}
	get := func(method, url string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Range", "bytes=3-")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	if code, text := get("GET", address); code != http.StatusPartialContent || text != "tent" {
		t.Errorf("%d %s", code, text)
	}
	base, _, _ := strings.Cut(strings.TrimPrefix(address, "http://"), "/")
	for method, url := range map[string]string{"GET": "http://" + base + "/source.mp4", "PUT": address} {
		if code, _ := get(method, url); code != http.StatusNotFound {
			t.Errorf("%s %s: %d", method, url, code)
		}
	}
	s.close()
	if code, text := get("GET", address); code != 0 {
		t.Errorf("after the end: %d %s", code, text)
	}
	http.DefaultClient.CloseIdleConnections()
}
