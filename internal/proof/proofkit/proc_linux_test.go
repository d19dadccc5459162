package proofkit

import (
	"testing"
	"time"
)

func TestParseStat_AcceptsAnyProcessName(t *testing.T) {
	t.Parallel()
	got, err := parseStat("42 (a) S 7 (b) Z 1 40 39 0 -1 4194560 1 0 0 0 10 20 30 40 20 0\n")
	want := stat{
		name: "a) S 7 (b", state: "Z", parent: 1, group: 40, session: 39,
		cpu: 300 * time.Millisecond, childrenCPU: 700 * time.Millisecond,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42 (sleep) S 1 40 39 0 -1 4194560 1 0 0 0 10 20 30 40")
	f.Add("42 (a) b) R 1 2 3 0")
	f.Add(") ( 1 2 3 4")
	f.Add("1 (x) S 1 99999999999999999999 1 0 0 0 0 0 0 0 0 0 0 0")
	f.Fuzz(func(t *testing.T, line string) {
		got, err := parseStat(line)
		if err != nil && got != (stat{}) {
			t.Errorf("%q gives %+v and an error", line, got)
		}
	})
}
