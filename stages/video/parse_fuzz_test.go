package video

import (
	"path/filepath"
	"strings"
	"testing"
)

func FuzzDirName(f *testing.F) {
	f.Add("ingest-0001-abcdefghij")
	f.Add("gen-123456789-a2b3c4d5e6.tmp")
	f.Add("gen-00001-abcdefghij")
	f.Add("../gen-0001-abcdefghij")
	f.Add("gen-0001-abcdefghij\n")
	f.Add("gen-0001-abcdefghij.tmp.tmp")
	empty := f.TempDir()
	f.Fuzz(func(t *testing.T, s string) {
		d, ok := parseDirName(s)
		if !ok {
			if _, err := findResultDir(empty, d.stage, s); err == nil {
				t.Errorf("%q was parsed as a finished directory", s)
			}
			return
		}
		if filepath.Base(s) != s || !filepath.IsLocal(s) || d.number < 0 {
			t.Errorf("%q was parsed as %+v", s, d)
		}
		if again, ok := parseDirName(d.String()); !ok || again != d {
			t.Errorf("%q was parsed as %+v, whose name is %s", s, d, d)
		}
		// Numbers with extra zeros are never written.
		if digits := strings.Split(s, "-")[1]; len(digits) == 4 || digits[0] != '0' {
			if d.String() != s {
				t.Errorf("%q became %s", s, d)
			}
		}
	})
}

func FuzzServedGenerations(f *testing.F) {
	f.Add("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\ngen-0001-abcdefghij/v240/index.m3u8\n", 2)
	f.Add("<BaseURL>gen-9999-abcdefghij/</BaseURL>gen-0001-zzzzzzzzzz.tmp", 9999)
	f.Add("gen-999999999-abcdefghijgen-0001-abcdefghij", 0)
	f.Fuzz(func(t *testing.T, manifest string, mine int) {
		served := generationSet{}
		for _, name := range generationPattern.FindAllString(manifest, -1) {
			d, ok := parseDirName(name)
			if !ok || d.unfinished || d.stage != generationPrefix {
				t.Fatalf("%q in a manifest was parsed as %+v, %t", name, d, ok)
			}
			served[d.number] = name
		}
		newest := served.newest()
		for number, name := range served {
			if number > newest || !filepath.IsLocal(name) || strings.Contains(name, "/") || !strings.Contains(manifest, name) {
				t.Errorf("generation %d of at most %d has the name %q", number, newest, name)
			}
		}
		// The generation that publish writes is found again.
		if mine > 0 && mine < 1e9 {
			own := dirName{stage: generationPrefix, number: mine, random: "abcdefghij"}.String()
			if got := generationPattern.FindString("\n" + own + "/v240/index.m3u8"); got != own {
				t.Errorf("%s was found as %q", own, got)
			}
		}
	})
}

func FuzzSafeExtension(f *testing.F) {
	f.Add("Holiday.MP4")
	f.Add("a.mp4;rm -rf /")
	f.Add("a.%s")
	f.Add(".\xff")
	f.Fuzz(func(t *testing.T, name string) {
		ext := safeExtension(name)
		if ext == "" {
			return
		}
		if len(ext) > 9 ||
			strings.ContainsFunc(ext[1:], func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) ||
			!strings.HasSuffix(strings.ToLower(name), ext) {
			t.Errorf("the extension of %q is %q", name, ext)
		}
	})
}
