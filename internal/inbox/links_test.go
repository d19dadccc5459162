package inbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cuelight/cuelight/internal/inbox"
)

func TestRun_DoesNotFollowLinksOutOfTheDirectory(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret.mp4")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(secret, longAgo, longAgo); err != nil {
		t.Fatal(err)
	}
	b := watch(t, func(o *inbox.Options) {
		dir := o.Dirs[0]
		// A directory whose name only begins with the watched directory's name is outside.
		neighbour := dir + "-neighbour"
		if err := os.Mkdir(neighbour, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(secret, filepath.Join(neighbour, "n.mp4")); err != nil {
			t.Fatal(err)
		}
		for name, target := range map[string]string{
			"absolute.mp4":  secret,
			"relative.mp4":  filepath.Join("..", filepath.Base(dir)+"-neighbour", "n.mp4"),
			"through.mp4":   "way/secret.mp4",
			"way":           outside,
			"neighbour.mp4": filepath.Join(neighbour, "n.mp4"),
			"broken.mp4":    "nowhere.mp4",
			"round.mp4":     "round.mp4",
		} {
			if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	})
	// A scan that sees this file has seen those above.
	b.write("z.mp4", "video", longAgo)
	if got := b.nextName(); got != "z.mp4" {
		t.Errorf("%s was submitted", got)
	}
	b.stopAndWait()
	if len(b.files) > 0 {
		t.Errorf("%s was submitted", b.nextName())
	}
}

func TestRun_FollowsALinkInsideTheDirectory(t *testing.T) {
	t.Parallel()
	var link string
	b := watch(t, func(o *inbox.Options) {
		// The directory itself is a link: its target counts.
		link = o.Dirs[0] + "-link"
		if err := os.Symlink(o.Dirs[0], link); err != nil {
			t.Fatal(err)
		}
		o.Dirs = []string{link}
		if err := os.Symlink(".store/a.mp4", filepath.Join(link, "b.mp4")); err != nil {
			t.Fatal(err)
		}
	})
	b.write(".store/a.mp4", "video", longAgo)
	if f := b.next(); f.Path != filepath.Join(link, "b.mp4") || f.Size != 5 {
		t.Errorf("submitted %+v", f)
	}
}
