package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
)

func TestMain(m *testing.M) {
	proofkit.RunIfChild(workerEnv, workerMain)
	proofkit.RunIfChild(coordinatorEnv, coordinatorMain)
	goleak.VerifyTestMain(m)
}

func TestRun_FindsNoErrorUnderFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes three quarters of a minute")
	}
	var out bytes.Buffer
	o := options{seed: 11, duration: 20 * time.Second}
	sum, err := run(t.Context(), o, &out)
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil || !sum.passed() {
		t.Errorf("%v, %v\n%s", sum, err, &out)
	}
	if sum.Completed == 0 || sum.Completed+sum.Dead+sum.Deleted+sum.Expired != sum.Submitted || sum.Kills == 0 || sum.Restarts == 0 {
		t.Errorf("the run had too few tasks, kills or restarts: %v\n%s", sum, &out)
	}
	if sum.Deleted == 0 || sum.Restored == 0 || sum.Purged == 0 || sum.Expired == 0 {
		t.Errorf("no task was deleted, restored, purged or deleted by retention: %v\n%s", sum, &out)
	}
	if !bytes.Contains(out.Bytes(), []byte("executions by remote workers")) || !bytes.Contains(out.Bytes(), []byte("kill-coordinator")) {
		t.Errorf("no remote worker worked, or no coordinator was killed\n%s", &out)
	}
	t.Logf("\n%s%v", &out, sum)
}

func TestRun_FindsNoErrorAfterFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	for name, kind := range map[string]faultKind{
		"from a killed primary":                failoverKill,
		"from a primary that refuses to write": failoverReadOnly,
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			o := options{failover: kind, healthy: 2 * time.Second, duration: 5 * time.Second}
			sum, err := run(t.Context(), o, &out)
			if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
				t.Skip(err)
			}
			if err != nil || !sum.passed() || sum.OutageMS < promoteAfter.Milliseconds() || sum.Completed == 0 {
				t.Errorf("%v, %v\n%s", sum, err, &out)
			}
			t.Log(sum)
		})
	}
}

func TestSubmitter_ReportsUnacknowledgedSubmissionsAfterFailover(t *testing.T) {
	t.Parallel()
	now := time.Now()
	correct := func() *submitter {
		return &submitter{
			submitted: 1, acknowledged: map[string]store.ID{"task-1": {1}},
			outage: time.Second, last: now.Add(time.Second),
		}
	}
	if found := correct().checkFailover(now); found != nil {
		t.Errorf("found %q", found)
	}
	for name, change := range map[string]func(*submitter){
		"a submission that was not acknowledged": func(s *submitter) { s.submitted = 2 },
		"no acknowledgement before":              func(s *submitter) { s.outage = 0 },
		"no acknowledgement after":               func(s *submitter) { s.last = now.Add(-time.Second) },
	} {
		s := correct()
		if change(s); len(s.checkFailover(now)) != 1 {
			t.Errorf("%s: found %q, want one violation", name, s.checkFailover(now))
		}
	}
}

func TestReadLogFile_SkipsIncompleteLastLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log")
	l, err := openLogFile(file)
	if err != nil {
		t.Fatal(err)
	}
	l.write(logEntry{What: startEntry, Stage: "ingest", Attempt: 3})
	if _, err := l.file.WriteString(`{"at":12,"what":"en`); err != nil {
		t.Fatal(err)
	}
	if err := l.file.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := readLogFile(file)
	if err != nil || len(all) != 1 || all[0].Attempt != 3 || time.Since(all[0].time()) > time.Minute {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestReadLogFile_AcceptsMissingFile(t *testing.T) {
	t.Parallel()
	if all, err := readLogFile(filepath.Join(t.TempDir(), "none")); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}
