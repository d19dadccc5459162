package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/store"
)

func TestDelete_UnpublishesAndUndeletePublishesAgain(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.run(0, "run", "clip.mp4")
	id := p.list()[0].TaskID.String()
	master := filepath.Join(p.dir, "data", "published", id, "master.m3u8")
	if r := p.run(0, "delete", id); !strings.Contains(r.stderr(), "no daemon is running") {
		t.Errorf("without a daemon it printed %q", r.stderr())
	}
	if _, err := os.Stat(master); err != nil {
		t.Errorf("without a daemon: %v", err)
	}
	daemon := p.start("serve")
	daemon.waitForOutput(`"msg":"deleted task unpublished"`, 1)
	if _, err := os.Stat(master); !os.IsNotExist(err) {
		t.Errorf("the manifest of a deleted video is there: %v", err)
	}
	if tasks := p.list(); len(tasks) != 0 {
		t.Errorf("deleted tasks are listed: %+v", tasks)
	}
	if r := p.run(4, "show", id); !strings.Contains(r.stderr(), "was deleted") || !strings.Contains(r.stderr(), "undelete") {
		t.Errorf("show printed %q", r.stderr())
	}
	if got := decode[store.DeletedTask](p.run(0, "list", "--deleted", "--json")); len(got) != 1 || got[0].ID.String() != id {
		t.Errorf("listed as deleted: %+v", got)
	}
	p.run(0, "undelete", id[len(id)-8:])
	if r := p.run(0, "watch", "--json", id); decode[reported](r)[0].Status != store.StatusCompleted {
		t.Errorf("the restored video is %+v", decode[reported](r))
	}
	if _, err := os.Stat(master); err != nil {
		t.Errorf("the restored video is not published: %v", err)
	}
	p.run(0, "delete", "--purge", id)
	daemon.waitForOutput(`"msg":"deleted task purged"`, 1)
	if r := p.run(4, "undelete", id); !strings.Contains(r.stderr(), "no such deleted task") {
		t.Errorf("undelete after a purge printed %q", r.stderr())
	}
	if _, err := os.Stat(filepath.Join(p.dir, "clip.mp4")); err != nil {
		t.Errorf("the source is gone: %v", err)
	}
	daemon.stop()
}

func TestUndelete_PublishesAVideoOfWhichOnlyThePublishedFilesWereLeft(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.run(0, "run", "clip.mp4")
	if err := os.Remove(filepath.Join(p.dir, "clip.mp4")); err != nil {
		t.Fatal(err)
	}
	id := p.list()[0].TaskID.String()
	master := filepath.Join(p.dir, "data", "published", id, "master.m3u8")
	daemon := p.start("serve", "--keep-source-copies", "1ms")
	daemon.waitForOutput(`"source_copies":1`, 1)
	if left, err := os.ReadDir(filepath.Join(p.dir, "data", "tasks")); err != nil || len(left) > 0 {
		t.Errorf("after the cleanup: %v, %v", left, err)
	}
	for n := range 2 {
		p.run(0, "delete", id)
		daemon.waitForOutput(`"msg":"deleted task unpublished"`, n+1)
		if _, err := os.Stat(filepath.Dir(master)); !os.IsNotExist(err) {
			t.Errorf("published files of a deleted video are there: %v", err)
		}
		p.run(0, "undelete", id)
		if r := p.run(0, "watch", "--json", id); decode[reported](r)[0].Status != store.StatusCompleted {
			t.Errorf("the restored video is %+v", decode[reported](r))
		}
		if _, err := os.Stat(master); err != nil {
			t.Errorf("the restored video is not published: %v", err)
		}
	}
	p.run(0, "delete", "--purge", id)
	daemon.waitForOutput(`"msg":"deleted task purged"`, 1)
	for _, dir := range []string{"tasks", "published"} {
		if _, err := os.Stat(filepath.Join(p.dir, "data", dir, id)); !os.IsNotExist(err) {
			t.Errorf("after the purge, %s: %v", dir, err)
		}
	}
	daemon.stop()
}
