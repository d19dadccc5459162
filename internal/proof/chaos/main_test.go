package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/postgres"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(roleMain(role))
	}
	goleak.VerifyTestMain(m)
}

func TestNothingIsLostOrDoneTwiceInChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes three quarters of a minute")
	}
	keep := filepath.Join(t.TempDir(), "chaos")
	var out bytes.Buffer
	sum, err := run(t.Context(), options{seed: 11, duration: 20 * time.Second, keep: keep, videos: true}, &out)
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil || !sum.good() {
		t.Errorf("%v, %v\n%s", sum, err, &out)
	}
	if sum.Completed == 0 || sum.Completed+sum.Dead != sum.Submitted || sum.Kills == 0 || sum.Restarts == 0 {
		t.Errorf("it was not much of a torment: %v\n%s", sum, &out)
	}
	t.Logf("\n%s%v", &out, sum)
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		if strings.HasPrefix(i.Name, "chaos") {
			t.Errorf("interface %s is left", i.Name)
		}
	}
}

func TestAJournalIsReadUpToWhereItIsTorn(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "journal")
	j, err := openJournal(file)
	if err != nil {
		t.Fatal(err)
	}
	j.write(entry{What: startOfWork, Stage: "ingest", Attempt: 3})
	if _, err := j.file.WriteString(`{"at":12,"what":"en`); err != nil {
		t.Fatal(err)
	}
	if err := j.file.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := readJournal(file)
	if err != nil || len(all) != 1 || all[0].Attempt != 3 || all[0].PID != os.Getpid() || time.Since(all[0].at()) > time.Minute {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestAProcessThatWroteNothingHasAnEmptyJournal(t *testing.T) {
	t.Parallel()
	if all, err := readJournal(filepath.Join(t.TempDir(), "none")); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}
