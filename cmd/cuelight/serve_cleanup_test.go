package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestServe_CleansUpWhenItStarts(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
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
	r.waitForOutput(`"msg":"disk cleaned up","removed":2,"bytes":1234`, 1)
	r.signal(syscall.SIGTERM)
	r.end(0)
	if _, err := os.Lstat(filepath.Dir(left)); err == nil {
		t.Error("the directory of the task is still there")
	}
}
