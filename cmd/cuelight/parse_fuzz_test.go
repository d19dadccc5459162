package main

import (
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// checkUsage checks that err is a usage error of one printable line.
func checkUsage(t *testing.T, err error) {
	t.Helper()
	p, ok := errors.AsType[*usererr.Error](err)
	if !ok || p.Kind != usererr.Usage || p.Text == "" ||
		strings.ContainsFunc(p.Text+p.Hint, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("the answer is %#v", err)
	}
}

func FuzzParams(f *testing.F) {
	f.Add(`{"title": "Holiday"}`)
	f.Add(`{"a": "\u0000"}`)
	f.Add(`{"a": "\\u0000"}`)
	f.Add(`[1]`)
	f.Add(`null`)
	f.Add("{\"a\"\x1b: 1}")
	f.Add(`{"a": 1} x`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseParams(text)
		var object map[string]any
		valid := json.Unmarshal([]byte(text), &object) == nil && object != nil
		if err != nil {
			checkUsage(t, err)
			if valid && !holdsNUL(object) {
				t.Errorf("%q is refused: %v", text, err)
			}
			return
		}
		if !valid || holdsNUL(object) || string(got) != text {
			t.Errorf("%q is taken as %q", text, got)
		}
	})
}

// holdsNUL says whether a text anywhere in the value has a zero in it, which
// PostgreSQL's does not.
func holdsNUL(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.ContainsRune(v, 0)
	case []any:
		return slices.ContainsFunc(v, holdsNUL)
	case map[string]any:
		for name, member := range v {
			if strings.ContainsRune(name, 0) || holdsNUL(member) {
				return true
			}
		}
	}
	return false
}

func FuzzTime(f *testing.F) {
	for _, s := range []string{
		"", "90m", "-1h", "2030-01-31T08:00:00Z", "2030-01-31 08:00", "2030-02-31", "9223372036854775807ns", "1e9h",
		"tomorrow\n",
	} {
		f.Add(s)
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseTime(text, now)
		if err != nil {
			checkUsage(t, err)
			if !got.IsZero() {
				t.Errorf("%q is %s and an error", text, got)
			}
			return
		}
		if d, err := time.ParseDuration(text); err == nil && !got.Equal(now.Add(d)) {
			t.Errorf("%q is %s", text, got)
		}
		// PostgreSQL can store these years.
		if got.Year() < -4712 || got.Year() > 294275 {
			t.Errorf("%q is in the year %d", text, got.Year())
		}
	})
}

func FuzzByteSize(f *testing.F) {
	for _, s := range []string{
		"500M", "20GiB", "0", "1.5k", "-1", "nan", "inf", "1e300P", "4096P", "B", "0x1p4", " 7 ", "9223372036854775807",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		const untouched = byteSize(-5)
		b := untouched
		if err := b.Set(s); err != nil {
			if b != untouched {
				t.Errorf("%q is %d and an error", s, b)
			}
			return
		}
		if b < 0 || b > 1<<62 {
			t.Fatalf("%q is %d bytes", s, b)
		}
		var again byteSize
		if err := again.Set(b.String()); err != nil || math.Abs(float64(again-b)) > 0.06*float64(b) {
			t.Errorf("%q is %d bytes, shown as %s, which is %d: %v", s, b, b.String(), again, err)
		}
	})
}

func FuzzNetwork(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "10.1.2.3", "::1", "fe80::1%eth0", "10.0.0.0/33", "::ffff:10.0.0.1/96", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseNetwork(s)
		if (err == nil) != n.IsValid() {
			t.Fatalf("%q is %s, %v", s, n, err)
		}
		if err != nil {
			return
		}
		// A single address lets nothing else in.
		if addr, err := netip.ParseAddr(s); err == nil && (!n.IsSingleIP() || n.Addr() != addr.WithZone("")) {
			t.Errorf("%q is %s", s, n)
		}
	})
}

func FuzzFilter(f *testing.F) {
	f.Add("dead", "transcode=failed")
	f.Add("", "")
	f.Add("Dead", "")
	f.Add("", "transcode")
	f.Add("", "=dead")
	f.Add("", "ingest=dead=dead")
	f.Add("", "\x1b[31m=dead")
	f.Fuzz(func(t *testing.T, status, stage string) {
		flags := &filterFlags{status: status, stage: stage}
		got, err := flags.filter()
		if err != nil {
			checkUsage(t, err)
			return
		}
		if status != "" && !slices.Contains(statuses, string(got.Status)) || string(got.Status) != status {
			t.Errorf("status %q is %q", status, got.Status)
		}
		if _, known := store.Video().Stage(got.Stage); stage != "" &&
			(!known || got.Stage+"="+string(got.StageStatus) != stage) {
			t.Errorf("stage %q is %q, %q", stage, got.Stage, got.StageStatus)
		}
	})
}

func FuzzNearest(f *testing.F) {
	f.Add("transcod", "transcode,ingest")
	f.Add("", ",")
	f.Add("héllo", "hello,help")
	f.Fuzz(func(t *testing.T, word, list string) {
		if len(word)+len(list) > 200 {
			return // it takes the product of the lengths
		}
		candidates := strings.Split(list, ",")
		if got := nearest(word, candidates); got != "" && !slices.Contains(candidates, got) {
			t.Errorf("the nearest to %q of %q is %q", word, candidates, got)
		}
		for _, c := range candidates {
			d := distance(word, c)
			if d != distance(c, word) || (d == 0) != (word == c) || d > max(len(word), len(c)) {
				t.Errorf("from %q to %q it is %d, and back %d", word, c, d, distance(c, word))
			}
		}
	})
}
