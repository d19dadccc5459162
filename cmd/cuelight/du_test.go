package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
)

// bytesOf returns the size of a kind of files in a location.
func (u usage) bytesOf(location, kind string) int64 {
	for _, l := range u.Locations {
		for _, f := range l.Files {
			if l.Name == location && f.Kind == kind {
				return f.Bytes
			}
		}
	}
	return -1
}

// frees returns what a setting would free if it were 30 days.
func (u usage) frees(setting string) freed {
	for _, s := range u.Retention {
		if s.Setting == setting {
			return s.Frees[0]
		}
	}
	return freed{Count: -1}
}

func TestDu_SaysWhatTakesTheSpaceAndWhatRetentionsWouldFree(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	p.env = append(p.env, "DATABASE_URL="+pool.Config().ConnString(), "CUELIGHT_PRESET=ultrafast")
	tasks := decode[reported](p.run(0, "run", "--json", "clip.mp4", "other.mp4"))
	first, second := tasks[0].TaskID.String(), tasks[1].TaskID.String()
	clip, err := os.Stat(p.path("clip.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	u := decode[usage](p.run(0, "du", "--json"))[0]
	if got := u.bytesOf("data", "copies of sources"); got != 2*clip.Size() {
		t.Errorf("copies of sources have %d bytes, want %d", got, 2*clip.Size())
	}
	if len(u.Largest) != 2 || u.Largest[0].State != "completed" || u.Largest[0].Published.Served == 0 || u.Tables.Tasks == 0 {
		t.Errorf("%+v", u)
	}
	if f := u.frees("keep-finished"); f.Count != 0 || *f.Bytes != 0 {
		t.Errorf("of new videos, --keep-finished would free %+v", f)
	}
	for _, sql := range []string{
		"update tasks set created_at = created_at - interval '40 days', updated_at = updated_at - interval '40 days'",
		"update attempts set started_at = started_at - interval '40 days', finished_at = finished_at - interval '40 days'",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	p.run(0, "delete", second)
	if _, err := pool.Exec(t.Context(), "update deleted_tasks set deleted_at = deleted_at - interval '31 days'"); err != nil {
		t.Fatal(err)
	}
	u = decode[usage](p.run(0, "du", "--json", "--limit", "1"))[0]
	all := decode[measuredVideo](p.run(0, "du", "--json", first, second[len(second)-8:]))
	if len(all) != 2 || all[0].State != "completed" || all[1].State != "deleted" || len(u.Largest) != 1 {
		t.Fatalf("%+v", all)
	}
	if u.Deleted != (videoCount{1, all[1].TotalBytes}) || u.Unknown.Videos != 0 {
		t.Errorf("deleted: %+v, want %d bytes", u.Deleted, all[1].TotalBytes)
	}
	for setting, want := range map[string]int64{
		"keep-finished": all[0].FreedData, "keep-source-copies": all[0].FreedData, "keep-deleted": all[1].FreedAll,
	} {
		if f := u.frees(setting); f.Count != 1 || *f.Bytes != want || want < clip.Size() {
			t.Errorf("--%s would free %d videos and %d bytes, want %d", setting, f.Count, *f.Bytes, want)
		}
	}

	out := p.run(0, "du").stdout.String()
	for _, text := range []string{"deleted, can be restored: 1 video", "--keep-dead-deliveries", first, second, " free of "} {
		if !strings.Contains(out, text) {
			t.Errorf("it does not print %q but\n%s", text, out)
		}
	}
	// The retention frees as much as du has said.
	if err := os.RemoveAll(filepath.Join(p.path("data"), "tasks", first)); err != nil {
		t.Fatal(err)
	}
	if left := decode[measuredVideo](p.run(0, "du", "--json", first))[0]; left.TotalBytes != all[0].TotalBytes-all[0].FreedData {
		t.Errorf("%d bytes of %d are left, %d were to be freed", left.TotalBytes, all[0].TotalBytes, all[0].FreedData)
	}
}

func TestDu_RefusesWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.run(2, "du", "--limit", "-1")
	p.run(4, "du", "01a21593-9640-7399-aac3-1bc4708a233d")
	p.run(4, "du", "deadbeef")
	if out := p.run(0, "du").stdout.String(); !strings.Contains(out, "(does not exist)") {
		t.Errorf("without directories it prints\n%s", out)
	}
}

func TestApproximate_HasTwoDigits(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "~0", 7: "~7", 99: "~99", 104: "~100", 996: "~1k", 1250: "~1.3k", 94_900: "~95k", 999_999: "~1M", 1_234_567: "~1.2M",
		54_321_000: "~54M",
	} {
		if got := approximate(n); got != want {
			t.Errorf("approximate(%d) = %s, want %s", n, got, want)
		}
	}
}
