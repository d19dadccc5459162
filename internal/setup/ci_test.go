package setup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runChecks runs .ci/run with a make that records its arguments, and fails for the target "fails". Without npm there are no
// other versions of PostgreSQL.
func runChecks(t *testing.T, npm bool, fails string) (printed, calls string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, ".ci/run"), string(text))
	postgres := "#!/bin/sh\necho 'cuelight: npm is offline' >&2\nexit 1\n"
	if npm {
		postgres = "#!/bin/sh\n"
	}
	writeFile(t, filepath.Join(dir, "internal/setup/postgres.sh"), postgres)
	for name, script := range map[string]string{
		"make": `echo "$*" >>"$CALLS"; [ "$1" != "` + fails + `" ] || { echo "--- FAIL: TestIt"; exit 1; }`, "dpkg-deb": "",
	} {
		writeFile(t, filepath.Join(dir, "programs", name), "#!/bin/sh\n"+script+"\n")
	}
	log := filepath.Join(dir, "calls")
	cmd := exec.Command(filepath.Join(dir, ".ci/run"))
	cmd.Env = append(os.Environ(), "CALLS="+log, "CUELIGHT_TEST_BROWSER=1", "CUELIGHT_PG_BIN=",
		"CUELIGHT_TEST_PICTURES="+dir+"/pictures", "PATH="+dir+"/programs:"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	text, readErr := os.ReadFile(log)
	if readErr != nil {
		t.Fatalf("%v: %v: %s", readErr, err, out)
	}
	return string(out), string(text), err == nil
}

func TestChecks_IncludeTheDatabaseTestsOfStagesOnOtherVersions(t *testing.T) {
	t.Parallel()
	printed, calls, ok := runChecks(t, true, "")
	if !ok || !strings.Contains(printed, "--- all passed") {
		t.Errorf("passed %v, printed %s", ok, printed)
	}
	for _, want := range []string{"test-postgres VERSION=13\n", "test-postgres VERSION=18\n"} { // the target has the packages
		if !strings.Contains(calls, want) {
			t.Errorf("make was not called with %q, but: %s", want, calls)
		}
	}
}

func TestChecks_RepeatFailuresAtTheEnd(t *testing.T) {
	t.Parallel()
	printed, _, ok := runChecks(t, true, "test")
	if _, last, _ := strings.Cut(printed, "--- the failures again:\n"); ok || !strings.HasPrefix(last, "--- FAIL: TestIt\n") {
		t.Errorf("passed %v, printed %s", ok, printed)
	}
}

func TestChecks_EndWithWhatWasNotRun(t *testing.T) {
	t.Parallel()
	const want = "--- NOT RUN: the tests on PostgreSQL 13: npm is offline\n--- NOT RUN: the tests on PostgreSQL 18: npm is offline\n"
	for _, fails := range []string{"", "vet"} {
		printed, _, ok := runChecks(t, false, fails)
		if ok != (fails == "") || !strings.HasSuffix(printed, want) || strings.Contains(printed, "all passed") {
			t.Errorf("with failing %q: passed %v, printed %s", fails, ok, printed)
		}
	}
}
