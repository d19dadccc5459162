package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// link forwards connections to an address, counts their bytes, and cuts all of them when certain
// numbers of bytes have passed.
type link struct {
	address string
	mu      sync.Mutex // guards the rest
	bytes   [2]int64   // up to the server, down from it
	cuts    [2][]int64 // the counts at which to cut, ascending
	done    int        // how many cuts were made
	open    map[net.Conn]bool
}

const up, down = 0, 1

// newLink listens on an address of this host.
func newLink(t testing.TB, ip, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	k := &link{address: l.Addr().String(), open: make(map[net.Conn]bool)}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { k.forward(client, to) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		k.closeAll()
		serving.Wait()
	})
	return k
}

func (k *link) forward(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	k.mu.Lock()
	k.open[client], k.open[server] = true, true
	k.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { k.copy(server, client, up) })
	both.Go(func() { k.copy(client, server, down) })
	both.Wait()
	k.mu.Lock()
	delete(k.open, client)
	delete(k.open, server)
	k.mu.Unlock()
}

// copy counts what it reads, whether it arrives or not.
func (k *link) copy(to, from net.Conn, direction int) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if k.count(direction, n) {
			k.closeAll()
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// count adds bytes, and reports whether it is time for a cut.
func (k *link) count(direction, n int) (cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bytes[direction] += int64(n)
	if at := k.cuts[direction]; len(at) > 0 && k.bytes[direction] >= at[0] {
		k.cuts[direction], cut = at[1:], true
		k.done++
	}
	return cut
}

func (k *link) closeAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.open {
		c.Close()
	}
}

// reset sets the counts to zero and plans cuts.
func (k *link) reset(up, down []int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bytes, k.cuts, k.done = [2]int64{}, [2][]int64{up, down}, 0
}

func (k *link) counted() (up, down int64, cuts int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bytes[0], k.bytes[1], k.done
}

// makeNoise creates a video whose files are large for their length.
func makeNoise(t testing.TB, length time.Duration) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "noise.mp4")
	out, err := exec.Command("ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=rate=25:size=1280x720,noise=alls=40:allf=t",
		"-t", strings.TrimSuffix(length.String(), "s"), "-c:v", "libx264", "-preset", "ultrafast", "-qp", "24",
		"-pix_fmt", "yuv420p", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// Over TLS, and through a link that is cut in the middle of downloads and uploads. The same
// video without cuts says how many bytes are needed.
func TestRemoteWorkers_SendAtMostOnePieceAgainPerCut(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "127.0.0.1")
	f.useTLS()
	f.startCoordinator()
	link := newLink(t, "127.0.0.1", f.address)
	f.server = "https://" + link.address
	f.addWorkers(1)
	source := makeNoise(t, 4*time.Second)
	size := fileSize(t, source)
	run := func(videos int) {
		t.Helper()
		if _, err := f.pool.Exec(t.Context(), `insert into tasks (source) values ($1)`, source); err != nil {
			t.Fatal(err)
		}
		f.awaitPublished(videos)
	}
	link.reset(nil, nil)
	run(1)
	sent, received, _ := link.counted()
	var cutUp, cutDown []int64
	for _, part := range []float64{0.1, 0.35, 0.6, 0.9} {
		cutUp, cutDown = append(cutUp, int64(part*float64(sent))), append(cutDown, int64(part*float64(received)))
	}
	link.reset(cutUp, cutDown)
	run(2)
	sentAgain, receivedAgain, cuts := link.counted()
	t.Logf("source %d bytes; without cuts %d up, %d down; with %d cuts %d up, %d down",
		size, sent, received, cuts, sentAgain, receivedAgain)
	if cuts != len(cutUp)+len(cutDown) {
		t.Errorf("%d cuts were made, want %d", cuts, len(cutUp)+len(cutDown))
	}
	// The heartbeats and handshakes of a longer run are some bytes more.
	const piece, other = 8 << 20, 1 << 20
	if most := sent + received + int64(cuts)*piece + other; sentAgain+receivedAgain > most {
		t.Errorf("%d bytes were sent with %d cuts, want at most %d", sentAgain+receivedAgain, cuts, most)
	}
	if received < size || sent < 1<<20 {
		t.Errorf("only %d bytes of a source of %d were received and %d sent: the cuts show nothing", received, size, sent)
	}
	for _, master := range publishedMasters(t, f.h) {
		checkPlayback(t, master)
	}
}

func fileSize(t testing.TB, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
