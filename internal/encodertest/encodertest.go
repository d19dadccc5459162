// Package encodertest stands in for graphics cards in tests. [New] makes a program to use as ffmpeg that
// claims to have hardware encoders. It encodes with libx264, whose options it makes of those of the hardware
// encoder; an option that the pipeline is not known to give is an error. It can fail like a device.
//
// It shows how Cuelight uses an encoder, and not how a device behaves.
package encodertest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed ffmpeg.sh
var program string

// Mode is how a call with a hardware encoder ends.
type Mode string

// The modes of a call.
const (
	OK     Mode = "ok"
	Start  Mode = "start"  // the device cannot be opened
	Middle Mode = "middle" // the device fails after three seconds of video
	Short  Mode = "short"  // the video ends after three seconds, without an error
	Crash  Mode = "crash"  // the driver crashes at the end
	Stall  Mode = "stall"  // nothing happens
	Green  Mode = "green"  // all pictures are green, without an error
)

// FFmpeg is a program that stands in for ffmpeg. It must run without a sandbox.
type FFmpeg struct {
	Path  string
	state string
}

// New makes the program. The modes are those of the calls with a hardware encoder, in this order; the last
// one is also that of all later calls. Default: OK.
func New(t testing.TB, modes ...Mode) FFmpeg {
	t.Helper()
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := FFmpeg{Path: filepath.Join(dir, "ffmpeg"), state: filepath.Join(dir, "calls")}
	head := "#!/bin/sh\nREAL='" + ffmpeg + "' STATE='" + f.state + "' MODES='"
	for _, m := range modes {
		head += string(m) + " "
	}
	// A child writes it: a program cannot be executed while a fork of another test has it open for writing.
	write := exec.Command("/bin/sh", "-c", `cat >"$0" && chmod 755 "$0"`, f.Path)
	write.Stdin = strings.NewReader(head + "'\n" + program)
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("write the stand-in for ffmpeg: %v: %s", err, out)
	}
	return f
}

// Calls returns the encoder of each call that encoded H.264, in the order of the calls.
func (f FFmpeg) Calls(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile(f.state)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}
