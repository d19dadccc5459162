package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cuelight/cuelight/stages/video"
)

func TestServeTidiesWhenItStarts(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	left := filepath.Join(p.path("data"), "tasks", "01a1f897-3d3a-79a9-8ad1-302c5e8ba6ae", "transcode-0001-aaaaaaaaaa.tmp")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "seg-00000.m4s"), make([]byte, 1234), 0o644); err != nil {
		t.Fatal(err)
	}
	yesterday := time.Now().Add(-72 * time.Hour)
	if err := os.Chtimes(left, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	r := p.start("serve")
	r.says(`"msg":"tidied","removed":2,"bytes":1234`, 1)
	r.signal(syscall.SIGTERM)
	r.end(0)
	if _, err := os.Lstat(filepath.Dir(left)); err == nil {
		t.Error("the directory of the task is still there")
	}
}

func TestTroubleWithTidyingIsToldOnce(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	dir := filepath.Join(t.TempDir(), "data")
	mess := tidying{log: zap.New(core), tidier: video.Cleaner{Config: video.Config{DataDir: dir, PublishDir: t.TempDir()}}}
	mess.once(t.Context())
	mess.once(t.Context())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mess.once(t.Context())
	mess.once(t.Context())
	var said []string
	for _, entry := range logs.All() {
		said = append(said, entry.Message)
	}
	if want := []string{"not everything can be tidied", "everything can be tidied again"}; !slices.Equal(said, want) {
		t.Errorf("it logged %q", said)
	}
}
