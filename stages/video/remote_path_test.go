package video

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// cutter is a link to a coordinator that ends after some bytes of a connection, some times.
type cutter struct {
	url     string
	target  string
	cuts    [2]atomic.Int64 // how often it will still end, up and down
	after   [2]int64        // bytes of one connection
	through [2]atomic.Int64
	all     sync.WaitGroup
}

func newCutter(t *testing.T, target string, cuts int64, after [2]int64) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{url: "http://" + l.Addr().String(), target: strings.TrimPrefix(target, "http://"), after: after}
	c.cuts[0].Store(cuts)
	c.cuts[1].Store(cuts)
	var connections sync.Map
	c.all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			connections.Store(from, true)
			c.all.Go(func() { c.serve(from) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		connections.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		c.all.Wait()
	})
	return c
}

func (c *cutter) serve(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	for i, way := range [][2]net.Conn{{to, from}, {from, to}} {
		both.Go(func() {
			defer way[0].Close()
			defer way[1].Close()
			buffer, passed := make([]byte, 16<<10), int64(0)
			for {
				n, err := way[1].Read(buffer)
				passed += int64(n)
				c.through[i].Add(int64(n))
				if _, writeErr := way[0].Write(buffer[:n]); err != nil || writeErr != nil {
					return
				}
				if passed >= c.after[i] && c.cuts[i].Add(-1) >= 0 {
					return
				}
			}
		})
	}
	both.Wait()
}

func TestRemoteStages_PublishWhatLocalOnesDo(t *testing.T) {
	t.Parallel()
	s := newRemoteSite(t)
	stop := s.workLocally()
	local := s.submit(clips.picture)
	localTranscode, _ := s.waitPublished(local)
	stop()
	s.workLocally(RemoteStageNames()...)
	s.workRemotely(s.url, "key-1")
	task := s.submit(clips.picture)
	tr, p := s.waitPublished(task)
	wantPlayable(t, filepath.Join(s.PublishDir, p.Master), append(tr.Output.Video, tr.Output.Audio...))
	wantPlayable(t, filepath.Join(s.PublishDir, p.Manifest), append(tr.Output.Video, tr.Output.Audio...))
	if len(tr.Output.Video) != len(localTranscode.Output.Video) || len(tr.Output.Audio) != len(localTranscode.Output.Audio) {
		t.Fatalf("renditions are %+v, of a local worker %+v", tr.Output, localTranscode.Output)
	}
	for i, got := range append(tr.Output.Video, tr.Output.Audio...) {
		want := append(localTranscode.Output.Video, localTranscode.Output.Audio...)[i]
		if got.Duration != want.Duration || got.Width != want.Width || got.Height != want.Height || got.Name != want.Name {
			t.Errorf("rendition %d is %+v, of a local worker %+v", i, got, want)
		}
	}
	history, err := s.History(t.Context(), task)
	if err != nil || len(history) != attemptsOfTask {
		t.Errorf("the history is %+v, %v", history, err)
	}
}

// paddedClip makes a source that is larger than the limit of a piece, and returns its path and its
// size: what follows the video is ignored.
func paddedClip(t *testing.T) (file string, size int64) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "large.mp4")
	in, err := os.ReadFile(clips.picture)
	if err != nil {
		t.Fatal(err)
	}
	free := append([]byte{0, 0xc0, 0, 0, 'f', 'r', 'e', 'e'}, make([]byte, 0xc00000-8)...)
	if err := os.WriteFile(file, append(in, free...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, int64(len(in) + len(free))
}

// A link that ends in the middle of downloads and uploads costs at most what was on its way.
func TestRemoteStages_SendAtMostOnePieceAgainPerCut(t *testing.T) {
	t.Parallel()
	const cuts, piece = 3, 8 << 20
	s := newRemoteSite(t)
	source, size := paddedClip(t)
	link := newCutter(t, s.url, cuts, [2]int64{30 << 10, 2 << 20})
	s.workLocally(RemoteStageNames()...)
	s.workRemotely(link.url, "key-1")
	task := s.submit(source)
	tr, p := s.waitPublished(task)
	wantPlayable(t, filepath.Join(s.PublishDir, p.Master), append(tr.Output.Video, tr.Output.Audio...))
	if up, down := link.cuts[0].Load(), link.cuts[1].Load(); up > 0 || down > 0 {
		t.Errorf("%d cuts of uploads and %d of downloads did not happen", up, down)
	}
	_, made, err := measureTree(filepath.Join(s.TaskDir(task), tr.Dir), func() {})
	if err != nil {
		t.Fatal(err)
	}
	up, down := link.through[0].Load(), link.through[1].Load()
	t.Logf("%d cuts in each direction: %d bytes down for a source of %d, %d bytes up for files of %d", cuts, down, size, up, made)
	if most := size + 2*cuts*piece; down < piece || down > most { // the last block has nothing that is needed
		t.Errorf("%d bytes were downloaded for a source of %d", down, size)
	}
	if most := made + 2*cuts*piece; up > most {
		t.Errorf("%d bytes were uploaded for files of %d", up, made)
	}
	history, err := s.History(t.Context(), task)
	if err != nil || len(history) != attemptsOfTask {
		t.Errorf("a cut link ended an attempt: %+v, %v", history, err)
	}
}
