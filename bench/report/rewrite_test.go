package report

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/result"
)

func TestRewrite_RestoresTheReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, err := sample().Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	path, err := Rewrite(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(text, markdown(sample(), plots(sample()), sample().Name())) {
		t.Errorf("the report differs, or %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "latest.md")); !os.IsNotExist(err) {
		t.Errorf("latest.md was created: %v", err)
	}
	if _, err := Rewrite(filepath.Join(dir, "none.json")); err == nil {
		t.Error("Rewrite accepted a missing file")
	}
}

func TestRewrite_UpdatesLatestOnlyForItsOwnResult(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	older, newer := sample(), sample()
	newer.StartedAt = newer.StartedAt.Add(time.Hour)
	file, err := older.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	newest, err := newer.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Write(newer, Options{Dir: dir, Latest: true}); err != nil {
		t.Fatal(err)
	}
	latest := filepath.Join(dir, "latest.md")
	want, err := os.ReadFile(latest)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Rewrite(file); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(latest); err != nil || !bytes.Equal(got, want) {
		t.Errorf("latest.md was replaced by an older result, or %v", err)
	}
	// An earlier version of the program may have written this.
	if err := os.WriteFile(latest, []byte("made from [x]("+newer.Name()+".json)"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Rewrite(newest); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(latest); err != nil || !bytes.Equal(got, want) {
		t.Errorf("latest.md was not written again, or %v", err)
	}
}

func TestReport_OmitsTargetsInOnceMode(t *testing.T) {
	t.Parallel()
	r := sample()
	heading := []byte("## Targets")
	if text := markdown(r, nil, "x"); !HasTargets(r) || !bytes.Contains(text, heading) {
		t.Error("a full run has no targets")
	}
	r.Mode = "once"
	if text := markdown(r, nil, "x"); HasTargets(r) || bytes.Contains(text, heading) {
		t.Error("a once run has targets")
	}
}

func TestReport_OfAnOlderResultOmitsRemoteWorkers(t *testing.T) {
	t.Parallel()
	r := sample()
	newer := []string{"start", "start_beyond", "http", "remote_drain", "waiting_workers"}
	r.Figures = slices.DeleteFunc(r.Figures, func(f result.Figure) bool { return slices.Contains(newer, f.Scenario) })
	file, err := r.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path, err := Rewrite(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || bytes.Contains(text, []byte(" Remote workers")) || !bytes.Contains(text, []byte("not measured")) {
		t.Errorf("the report has a section about remote workers, or no unmeasured target; error: %v", err)
	}
	if text := markdown(sample(), nil, "x"); !bytes.Contains(text, []byte(". Remote workers")) {
		t.Error("a newer report has no section about remote workers")
	}
}
