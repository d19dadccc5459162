package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/internal/whispertest"
)

func TestServe_AddsAutomaticCaptionsOnceAfterTheVideoIsPublished(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	program := whispertest.New(t)
	open := program.Shut(t)
	p.env = append(p.env, "CUELIGHT_WHISPER="+program.Model, "CUELIGHT_WHISPER_CLI="+program.Path, "CUELIGHT_SANDBOX=off")
	p.run(0, "submit", "--params", `{"automatic_captions": true, "renditions": [240]}`, "clip.mp4")
	p.run(0, "submit", "--params", `{"automatic_captions": "fr", "renditions": [240]}`, "other.mp4")

	killed := p.start("serve")
	killed.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 2)
	waittest.Until(t, "the speech is being recognized", func() bool { return program.Calls() == 1 })
	tasks := p.list()
	spoken, silent := tasks[0], tasks[1]
	if strings.HasSuffix(spoken.Source, "other.mp4") {
		spoken, silent = silent, spoken
	}
	master := p.path("data/published/" + spoken.TaskID.String() + "/master.m3u8")
	if text := readFile(t, master); strings.Contains(text, "SUBTITLES") {
		t.Errorf("captions before they were made\n%s", text)
	}
	killed.signal(syscall.SIGKILL)
	killed.end(-1)
	// As a minute later, when the claim has expired.
	if _, err := p.connect().Exec(t.Context(), `update cuelight_automatic_captions set run_at = now()`); err != nil {
		t.Fatal(err)
	}

	// One that stops gives its attempt back, and another one makes them.
	stopped := p.start("serve")
	waittest.Until(t, "the speech is being recognized again", func() bool { return program.Calls() == 2 })
	stopped.signal(syscall.SIGTERM)
	stopped.end(0)
	open()
	last := p.start("serve")
	last.waitForOutput(`"msg":"automatic captions completed"`, 2)
	last.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)
	if text := readFile(t, master); strings.Count(text, "TYPE=SUBTITLES") != 1 ||
		!strings.Contains(text, `NAME="Deutsch (automatic)",LANGUAGE="de",DEFAULT=NO`) {
		t.Errorf("not the captions in\n%s", text)
	}
	last.signal(syscall.SIGTERM)
	last.end(0)
	if text := last.stderr(); strings.Contains(text, `"stage":"transcode"`) || strings.Contains(text, `"level":"warn"`) {
		t.Errorf("it logged\n%s", text)
	}
	all := decode[attached.File](p.run(0, "captions", "list", "--json", spoken.TaskID.String()))
	if len(all) != 1 || all[0].Cues != 1 || all[0].AddedBy != attached.Automatic || all[0].Default {
		t.Errorf("%+v", all)
	}
	if none := decode[attached.File](p.run(0, "captions", "list", "--json", silent.TaskID.String())); len(none) != 0 {
		t.Errorf("captions where nothing is spoken: %+v", none)
	}
	if n := program.Calls(); n > 4 {
		t.Errorf("the speech of two videos was recognized %d times", n)
	}
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
