package console

import (
	"os/exec"
	"strings"
	"testing"
)

func TestFit_ReturnsTheExactWidth(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "a", "holiday.mp4", "日本語の動画.mp4", "cafe\u0301 au lait.mp4", strings.Repeat("x", 300) + ".mkv",
	} {
		for n := range 40 {
			if got := Width(Fit(s, n)); got != n {
				t.Errorf("fit(%q, %d) is %d columns wide", s, n, got)
			}
		}
	}
	got := Fit("holiday-in-spain.mp4", 11)
	if got != "holid~n.mp4" && got != "holid~.mp4 " && !strings.HasSuffix(got, ".mp4") {
		t.Errorf("the ending is lost: %q", got)
	}
}

func TestClip_IsNeverWider(t *testing.T) {
	t.Parallel()
	if got := Clip("日本語", 5); got != "日本" {
		t.Errorf("got %q", got)
	}
}

func TestShellQuote_IsParsedByTheShell(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"/a/b.m3u8", "", "it's", "a b", `"$HOME" \ *`, "dash-", "é"} {
		out, err := exec.Command("sh", "-c", "printf %s "+ShellQuote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("the shell makes %q of %s (%v)", out, ShellQuote(s), err)
		}
	}
}
