package result

import "testing"

func TestFirstVersion_ParsesProgramOutput(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n":   "15.18",
		"ffmpeg version 5.1.9-0+deb12u1 Copyright (c) 2000-2026\n": "5.1.9-0+deb12u1",
		"ffmpeg version n7.1 Copyright\nbuilt with gcc 14":         "ffmpeg version n7.1 Copyright",
		"v20.20.2\n":       "20.20.2",
		"git version 2.39": "2.39",
		"":                 "",
	} {
		if got := firstVersion(output); got != want {
			t.Errorf("firstVersion(%q) is %q, want %q", output, got, want)
		}
	}
}
