package web_test

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

func TestPublished_ServesMediaTypesAndRanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := store.ID{7}
	at := publishedPath(id.String())
	for name, want := range map[string]string{
		"master.m3u8": "application/vnd.apple.mpegurl", "manifest.mpd": "application/dash+xml",
		"gen-0001-aaaaaaaaaa/v/seg.m4s": "video/iso.segment", "gen-0001-aaaaaaaaaa/v/init.mp4": "video/mp4",
		"gen-0001-aaaaaaaaaa/storyboard/s.vtt": "text/vtt; charset=utf-8", "gen-0001-aaaaaaaaaa/poster.jpg": "image/jpeg",
		"gen-0001-aaaaaaaaaa/metadata.json": "application/json", "gen-0001-aaaaaaaaaa/page.html": "application/octet-stream",
		"gen-0001-aaaaaaaaaa/UPPER.JPG": "image/jpeg", "gen-0001-aaaaaaaaaa/with space & %.jpg": "image/jpeg",
	} {
		b.publish(id, name, "0123456789")
		path := at + "/" + strings.NewReplacer("%", "%25", " ", "%20").Replace(name)
		got := b.do(call{method: "GET", path: path, as: readText}).wantStatus(200, nil)
		if got.header.Get("Content-Type") != want || string(got.body) != "0123456789" ||
			got.header.Get("Accept-Ranges") != "bytes" {
			t.Errorf("%s: %v, %s", name, got.header, got.body)
		}
		cache := got.header.Get("Cache-Control")
		if strings.Contains(name, "/") != strings.Contains(cache, "immutable") || !strings.HasPrefix(cache, "private") {
			t.Errorf("%s: may be kept as %q", name, cache)
		}
		part := b.do(call{method: "GET", path: path, header: http.Header{"Range": {"bytes=3-5"}}}).wantStatus(206, nil)
		if string(part.body) != "345" || part.header.Get("Content-Range") != "bytes 3-5/10" {
			t.Errorf("%s: %v, %s", name, part.header, part.body)
		}
		b.do(call{
			method: "GET", path: path, header: http.Header{"If-None-Match": {got.header.Get("Etag")}},
		}).wantStatus(304, nil)
		b.do(call{method: "GET", path: path, header: http.Header{"Range": {"bytes=90-"}}}).wantStatus(416, nil)
		if head := b.do(call{method: "HEAD", path: path}).wantStatus(200, nil); len(head.body) != 0 ||
			head.header.Get("Content-Length") != "10" {
			t.Errorf("%s: %v, %s", name, head.header, head.body)
		}
	}
	b.do(call{method: "GET", path: at + "/master.m3u8", as: "-"}).wantProblem(401, "unauthenticated")
}

func TestPublished_ReplacedFileHasAnotherETag(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := store.ID{7}
	path := publishedPath(id.String()) + "/master.m3u8"
	b.publish(id, "master.m3u8", "one")
	tag := b.get(path).wantStatus(200, nil).header.Get("Etag")
	b.publish(id, "new", "two")
	dir := filepath.Join(b.published, id.String())
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "master.m3u8")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "master.m3u8"), time.Time{}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	got := b.do(call{method: "GET", path: path, header: http.Header{"If-None-Match": {tag}}}).wantStatus(200, nil)
	if string(got.body) != "two" || got.header.Get("Etag") == tag {
		t.Errorf("%s %v", got.body, got.header)
	}
}

func TestPublished_ServesNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := store.ID{7}
	outside := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.publish(id, "gen-0001-aaaaaaaaaa/poster.jpg", "poster")
	b.publish(id, ".switch-1/master.m3u8", "secret")
	b.publish(id, "gen-0002-bbbbbbbbbb.tmp/poster.jpg", "secret")
	b.publish(store.ID{8}, "other.json", "other")
	if err := os.WriteFile(filepath.Join(b.published, ".cuelight-id"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(b.published, id.String())
	for name, to := range map[string]string{
		"link.json": outside, "up": b.published + "/..", "rel.json": "../../../../../../etc/passwd", "loop": "loop",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	base := publishedPath("")
	for _, path := range []string{
		id.String() + "/nothing.json", id.String() + "/", id.String() + "/gen-0001-aaaaaaaaaa",
		id.String() + "/gen-0001-aaaaaaaaaa/",
		id.String() + "/link.json", id.String() + "/up/secret.json", id.String() + "/rel.json", id.String() + "/loop",
		id.String() + "/pipe.json",
		id.String() + "/.switch-1/master.m3u8", id.String() + "/gen-0002-bbbbbbbbbb.tmp/poster.jpg",
		"../.cuelight-id", ".cuelight-id",
		id.String() + "/%2e%2e/.cuelight-id", id.String() + "/..%2f.cuelight-id",
		id.String() + "/%2e%2e/" + store.ID{8}.String() + "/other.json",
		id.String() + "/..%2f" + store.ID{8}.String() + "%2fother.json", id.String() + "/%2fetc%2fpasswd",
		id.String() + "/a%00b", id.String() + "/a%5cb",
		"nonsense/x.json", store.ID{}.String() + "/x.json",
	} {
		got := b.get(base + path)
		if got.status == 200 || strings.Contains(string(got.body), "secret") && !strings.Contains(string(got.body), "urn:") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	got := b.get(base+id.String()+"/gen-0001-aaaaaaaaaa/poster.jpg").wantStatus(200, nil)
	if string(got.body) != "poster" {
		t.Errorf("%s", got.body)
	}
}

func TestPublished_DistinguishesMissingFilesFromErrors(t *testing.T) {
	t.Parallel()
	for no, want := range map[syscall.Errno]bool{
		syscall.ENOENT: true, syscall.ENOTDIR: true, syscall.ELOOP: true, syscall.ENAMETOOLONG: true, syscall.ENXIO: true,
		syscall.EIO: false, syscall.EMFILE: false, syscall.ENFILE: false, syscall.EACCES: false, syscall.ESTALE: false,
	} {
		if got := web.IsFileNotFound(&fs.PathError{Op: "openat", Path: "x", Err: no}); got != want {
			t.Errorf("%v: %t", no, got)
		}
	}
	b := setup(t)
	id := store.ID{7}
	at := publishedPath(id.String())
	b.publish(id, "gen/a.jpg", "a")
	b.get(at+"/gen/"+strings.Repeat("x", 300)).wantProblem(404, "not-found")
	if os.Geteuid() == 0 {
		return // who may do everything
	}
	if err := os.Chmod(filepath.Join(b.published, id.String(), "gen"), 0); err != nil {
		t.Fatal(err)
	}
	b.get(at+"/gen/a.jpg").wantProblem(500, "internal")
	_ = os.Chmod(filepath.Join(b.published, id.String(), "gen"), 0o755) // so that it can be removed
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errors) != 1 {
		t.Errorf("troubles are %v", b.errors)
	}
}
