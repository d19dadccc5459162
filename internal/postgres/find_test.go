package postgres_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/postgres"
)

// fakeServer creates a directory with programs that print a version.
func fakeServer(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"initdb", "postgres"} {
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind_UsesTheGivenDirectoryAloneAndReadsItsVersion(t *testing.T) {
	for text, want := range map[string]postgres.Binaries{
		"15.18 (Debian 15.18-0+deb12u1)": {Version: "15.18", Major: 15},
		"17.0":                           {Version: "17.0", Major: 17},
		"19beta1":                        {Version: "19beta1", Major: 19},
		"20devel":                        {Version: "20devel", Major: 20},
	} {
		dir := fakeServer(t, text)
		t.Setenv(postgres.BinEnv, dir)
		got, err := postgres.Find()
		want.Dir = dir
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestFind_SkipsUnusableServers(t *testing.T) {
	for name, c := range map[string]struct{ dir, says string }{
		"no programs":     {t.TempDir(), "initdb"},
		"too old":         {fakeServer(t, "12.22"), "12.22"},
		"unknown version": {fakeServer(t, "of the future"), "of the future"},
	} {
		t.Setenv(postgres.BinEnv, c.dir)
		got, err := postgres.Find()
		if len(got) != 0 || !errors.Is(err, postgres.ErrNotInstalled) {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %q; want %q in it", name, err, c.says)
		}
	}
}

func TestStart_WithoutServerProgramsChangesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(postgres.BinEnv, t.TempDir())
	_, err := postgres.Start(t.Context(), postgres.Options{Dir: dir})
	if !errors.Is(err, postgres.ErrNotInstalled) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
