package invariant

import "testing"

func TestTheNameOfAProcessMayHoldAnything(t *testing.T) {
	t.Parallel()
	got, err := parseStat("42 (a) S 7 (b) Z 1 40 39 0 -1 4194560 1 0\n")
	if want := (stat{name: "a) S 7 (b", state: "Z", group: 40, session: 39}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42 (sleep) S 1 40 39 0 -1")
	f.Add("42 (a) b) R 1 2 3 0")
	f.Add(") ( 1 2 3 4")
	f.Add("1 (x) S 1 99999999999999999999 1")
	f.Fuzz(func(t *testing.T, line string) {
		got, err := parseStat(line)
		if err != nil && got != (stat{}) {
			t.Errorf("%q is %+v and an error", line, got)
		}
	})
}
