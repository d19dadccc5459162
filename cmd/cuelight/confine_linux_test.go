package main

import (
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/media"
)

// The process is one for all tests, so this one runs alone.
func TestWorkProcess_IsNotDumpableWithASandbox(t *testing.T) {
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) })
	for mode, want := range map[string]int{"auto": 0, "off": 1} {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		c := &cli{Options: dbconn.Options{DataDir: t.TempDir()}}
		o := c.workFlags(&cobra.Command{})
		o.sandbox = mode
		if _, err := c.prepareWork(o); err != nil {
			t.Fatal(err)
		}
		if got, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || got != want {
			t.Errorf("--sandbox %s: dumpable is %d (%v), want %d", mode, got, err, want)
		}
	}
}

func TestSandboxFlags_AreChecked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*workOptions){
		"an unknown mode":          func(o *workOptions) { o.sandbox = "half" },
		"root":                     func(o *workOptions) { o.mediaUser = "root" },
		"an unknown user":          func(o *workOptions) { o.mediaUser = "no such user" },
		"everything":               func(o *workOptions) { o.mediaReadable = []string{"/"} },
		"a path that depends":      func(o *workOptions) { o.mediaReadable = []string{"lib"} },
		"a time factor of nothing": func(o *workOptions) { o.timeFactor = 0 },
	} {
		o := (&cli{}).workFlags(&cobra.Command{})
		change(o)
		if _, err := o.config("/a", "/b"); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	o := (&cli{}).workFlags(&cobra.Command{})
	o.sandbox, o.mediaUser = "off", "nobody"
	config, err := o.config("/a", "/b")
	if err != nil || config.Tools.Sandbox != media.SandboxOff || config.Tools.User < 1 {
		t.Errorf("%v, %+v", err, config.Tools)
	}
}
