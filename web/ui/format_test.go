package ui

import (
	"net/url"
	"reflect"
	"testing"
	"time"
)

func TestFormatters_UseReadableUnits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{formatDuration(0), "0 s"}, {formatDuration(300 * time.Microsecond), "0.3 ms"},
		{formatDuration(4200 * time.Microsecond), "4.2 ms"}, {formatDuration(42 * time.Millisecond), "42 ms"},
		{formatDuration(9960 * time.Microsecond), "10 ms"}, {formatDuration(999700 * time.Microsecond), "1.0 s"},
		{formatDuration(9970 * time.Millisecond), "10 s"}, {formatDuration(1500 * time.Millisecond), "1.5 s"},
		{formatDuration(42 * time.Second), "42 s"}, {formatDuration(65 * time.Second), "1 m 05 s"},
		{formatDuration(90 * time.Minute), "1 h 30 m"}, {formatDuration(50 * time.Hour), "2 days"},
		{formatDuration(-time.Minute), "1 m 00 s"},
		{formatClock(59.6), "1:00"}, {formatClock(3725), "1:02:05"}, {formatClock(-1), ""},
		{formatBytes(12), "12 bytes"}, {formatBytes(3 << 20), "3.0 MiB"}, {formatBytes(5 << 30), "5.00 GiB"},
		{count(1, "video"), "1 video"}, {count(1234567, "video"), "1,234,567 videos"},
		{formatInt(-1234), "-1,234"}, {formatInt(999), "999"},
		{sourceName("/srv/films/a b.mp4"), "a b.mp4"},
		{sourceName("https://user:pass@example.org/x/film.mp4?token=1"), "film.mp4"},
		{sourceName("https://example.org/?x=1"), "example.org"},
		{publicSource("https://user:pass@example.org/x/film.mp4?token=1#f"), "https://example.org/x/film.mp4"},
		{firstLine("\n  one\u202etwo\x07\nthree"), "one\uFFFDtwo\uFFFD"},
		{shellCommand("retry", "--source", "it's; rm"), `cuelight retry --source 'it'\''s; rm'`},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestLocalPath_AcceptsOnlyPathsOfThisServer(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"/": "/", "/dead?q=a%20b": "/dead?q=a%20b", "": "", "dead": "", "//evil.example": "", "https://evil.example/": "",
		`/\evil.example`: "", "/\tevil": "", "/a\r\nb": "", "javascript:alert(1)": "",
	} {
		if got := localPath(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

func FuzzListQuery_SurvivesItsAddress(f *testing.F) {
	f.Add("state=dead&q=x&user=a&stage=ingest&status=dead&error=%00&order=oldest" +
		"&after=01a1f897-3d3a-79a9-8ad1-302c5e8ba6ae")
	f.Add("q=%ff%fe&after=1&task=2&;")
	f.Fuzz(func(t *testing.T, query string) {
		v, _ := url.ParseQuery(query) // as much as is valid
		for _, read := range []func(url.Values) listQuery{readBoardQuery, readDeadQuery} {
			first := read(v)
			again, err := url.ParseQuery(first.Encode())
			if err != nil {
				t.Fatal(err)
			}
			if second := read(again); !reflect.DeepEqual(first, second) {
				t.Errorf("%+v becomes %+v", first, second)
			}
		}
		if to := localPath(query); to != "" && (to[0] != '/' || len(to) > 1 && (to[1] == '/' || to[1] == '\\')) {
			t.Errorf("%q is accepted as a local path", to)
		}
	})
}
