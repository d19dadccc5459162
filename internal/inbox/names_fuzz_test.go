package inbox

import (
	"path/filepath"
	"strings"
	"testing"
)

func FuzzIsUnfinished(f *testing.F) {
	f.Add("film.mp4")
	f.Add("film.mp4.part")
	f.Add(".film.mp4.Xa3f")
	f.Add("film.MP4.CRDOWNLOAD")
	f.Add("~film.mp4~")
	f.Add("")
	f.Fuzz(func(t *testing.T, name string) {
		for _, unfinished := range []string{
			"." + name, "~" + name, name + "~", name + ".part", name + ".Tmp", name + ".aria2",
		} {
			if !isUnfinished(unfinished) {
				t.Errorf("%q counts as complete", unfinished)
			}
		}
		if name != "" && !strings.ContainsAny(name[:1], ".~") && isUnfinished(name+".mp4") {
			t.Errorf("%q counts as unfinished", name+".mp4")
		}
	})
}

func FuzzIsInside(f *testing.F) {
	f.Add("/srv/inbox/a.mp4", "/srv/inbox")
	f.Add("/srv/inbox-2/a.mp4", "/srv/inbox")
	f.Add("/srv/inbox/../a", "/srv/inbox")
	f.Add("/a", "/")
	f.Add("a", "")
	f.Fuzz(func(t *testing.T, path, dir string) {
		if !filepath.IsAbs(path) || dir != "" && !filepath.IsAbs(dir) {
			return // realPath returns absolute paths
		}
		inside := strings.TrimSuffix(filepath.Clean(dir), "/") + "/"
		clean := filepath.Clean(path)
		want := dir != "" && (strings.HasPrefix(clean, inside) || clean == filepath.Clean(dir))
		if got := isInside(path, dir); got != want {
			t.Errorf("%q inside %q: %t", path, dir, got)
		}
	})
}
