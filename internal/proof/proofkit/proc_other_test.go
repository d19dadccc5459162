//go:build !linux

package proofkit

import (
	"testing"
	"time"
)

func TestParsePSTime_ReadsEveryForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0:00.25":    250 * time.Millisecond,
		"75:01":      75*time.Minute + time.Second,
		"02:03:04":   2*time.Hour + 3*time.Minute + 4*time.Second,
		"1-02:03:04": 26*time.Hour + 3*time.Minute + 4*time.Second,
	} {
		if got, err := parsePSTime(text); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "3", "a:b", "1:2:3:4"} {
		if got, err := parsePSTime(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
