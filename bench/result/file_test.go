package result_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/bench/result"
)

func sample() *result.Result {
	r := result.New("full")
	r.StartedAt = time.Date(2026, 11, 20, 18, 5, 59, 0, time.UTC)
	r.Machine = result.Machine{
		CPU: "Some CPU @ 2 GHz", Cores: 2, OS: "linux", Arch: "amd64", Filesystem: "ext4 on /dev/a b",
		Versions: map[string]string{"postgres": "15.18"},
	}
	r.Settings["cuelight"] = "of [1, 2]\n[3]"
	r.Skip("graphile", "no node")
	r.Add(key("e2e", "cuelight", "idle"), "ms", result.FromSamples([]float64{2.5, 3}),
		result.FromSamples([]float64{1e-7, 4}))
	r.Add(key("rate", "river_tx", "rate=400"), "ms", result.FromSamples([]float64{26}))
	r.Add(key("rate_kept", "river_tx", "rate=400"), "share", result.FromValue(0.99))
	r.Add(key("idle_daemon", "cuelight", "cpu"), "share of a core", result.FromValue(0.003))
	r.Add(key("notifies", "cuelight", ""), "per task", result.FromValue(0.02))
	r.Add(key("transcode", "ffmpeg_bare", "clip=a b/c,cpu"), "CPU s", result.FromValue(12))
	return r
}

func TestRead_ReturnsWhatWriteWrote(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "results")
	want := sample()
	path, err := want.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(path) != "2026-11-20T1805Z-full.json" {
		t.Errorf("the file name is %s", filepath.Base(path))
	}
	got, err := result.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v: want two files", entries, err)
	}
}

func TestWrite_PutsSamplesOnOneLine(t *testing.T) {
	t.Parallel()
	path, err := sample().Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), `"samples": [1e-7,4]`) {
		t.Error("the samples are not on one line")
	}
}

func TestRead_RejectsUnknownFormat(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(path, []byte(`{"format":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := result.Read(path); !errors.Is(err, result.ErrFormat) {
		t.Errorf("%v, want ErrFormat", err)
	}
}

func TestWriteFileAtomically_LeavesNothingOnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blocking := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(blocking, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := result.WriteFileAtomically(filepath.Join(dir, "a"), nil); err == nil {
		t.Fatal("the file replaced a directory")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestBenchmarks_WritesBenchstatLines(t *testing.T) {
	t.Parallel()
	const want = `# Cuelight unknown, full, 2026-11-20T18:05:59Z
# postgres 15.18

goos: linux
goarch: amd64
pkg: github.com/cuelight/cuelight/bench
cpu: Some CPU @ 2 GHz
cores: 2
filesystem: ext4 on /dev/a b

Unit p50-ms better=lower
Unit p95-ms better=lower
Unit p99-ms better=lower
Unit share better=higher
Unit share-of-a-core better=lower
Unit per-task better=lower
Unit CPU-s better=lower

BenchmarkE2EIdle/contestant=cuelight 1 2.75 p50-ms 2.975 p95-ms 2.995 p99-ms
BenchmarkE2EIdle/contestant=cuelight 1 2 p50-ms 3.8 p95-ms 3.96 p99-ms
BenchmarkRate/rate=400/contestant=river_tx 1 26 p50-ms 26 p95-ms 26 p99-ms
BenchmarkRateKept/rate=400/contestant=river_tx 1 0.99 share
BenchmarkIdleDaemonCpu/contestant=cuelight 1 0.003 share-of-a-core
BenchmarkNotifies/contestant=cuelight 1 0.02 per-task
BenchmarkTranscodeCpu/clip=a_b_c/contestant=ffmpeg_bare 1 12 CPU-s
`
	if d := cmp.Diff(want, sample().Benchmarks()); d != "" {
		t.Error(d)
	}
}

func TestBenchmarks_OmitsAmbiguousUnitDirection(t *testing.T) {
	t.Parallel()
	r := sample()
	k := key("loss", "cuelight", "")
	r.Add(k, "share", result.FromValue(0.1))
	f, _ := r.Find(k)
	f.Lower = true
	if strings.Contains(r.Benchmarks(), "Unit share better") {
		t.Error("an ambiguous unit has a direction")
	}
}
