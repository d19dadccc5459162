package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
)

// host is a network namespace with a link to this one, and without the directories that it must
// not share.
type host struct {
	holder *childproc.Process
	hidden []string // directories that are empty there
}

// enter makes a command run on the host.
func (h *host) enter(cmd *exec.Cmd) {
	var mounts strings.Builder
	for _, dir := range h.hidden {
		fmt.Fprintf(&mounts, "mount -t tmpfs none '%s' && ", dir)
	}
	cmd.Args = append([]string{
		"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", h.holder.PID()), "unshare", "--mount",
		"sh", "-c", mounts.String() + `exec "$@"`, "sh",
	}, cmd.Args...)
	var err error
	if cmd.Path, err = exec.LookPath("nsenter"); err != nil {
		cmd.Err = err
	}
}

// newHosts makes hosts that reach this one at an address.
func newHosts(t testing.TB, n int) (hosts []*host, address string) {
	t.Helper()
	// The addresses of 198.18.0.0/15 are reserved for tests of networks.
	net24 := fmt.Sprintf("198.19.%d.", os.Getpid()%250)
	address = net24 + "1"
	for i := range n {
		cmd := exec.Command("unshare", "--net", "sh", "-c", "echo; exec cat")
		created := make(chan struct{}, 1)
		cmd.Stdout = childproc.Lines(func([]byte) { created <- struct{}{} })
		if _, err := cmd.StdinPipe(); err != nil { // for cat to read
			t.Fatal(err)
		}
		holder, err := childproc.Start(cmd, childproc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		outer := fmt.Sprintf("e2e%dh%d", os.Getpid()%100000, i)
		t.Cleanup(func() {
			_ = exec.Command("ip", "link", "delete", outer).Run() // it ends with the namespace, but some time later
			holder.Kill()
		})
		<-created
		h := &host{holder: holder}
		inside := fmt.Sprintf("nsenter --net=/proc/%d/ns/net ", holder.PID())
		here, there := fmt.Sprint(net24, 4*i+1), fmt.Sprint(net24, 4*i+2)
		for _, line := range []string{
			fmt.Sprintf("ip link add %s type veth peer name eth0 netns %d", outer, holder.PID()),
			fmt.Sprintf("ip address add %s/30 dev %s", here, outer), "ip link set " + outer + " up",
			inside + "ip link set lo up", inside + "ip address add " + there + "/30 dev eth0", inside + "ip link set eth0 up",
		} {
			runLine(t, line)
		}
		if i > 0 {
			runLine(t, inside+"ip route add "+address+"/32 via "+here)
		}
		hosts = append(hosts, h)
	}
	return hosts, address
}

func runLine(t testing.TB, line string) {
	t.Helper()
	words := strings.Fields(line)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// goodFiles returns n of the real files that can be published, some of them twice under two names.
func goodFiles(t testing.TB, n int) (files []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(mediaDir(), "*"))
	if err != nil || len(found) == 0 {
		t.Skip("the directory of real files, " + mediaDir() + ", does not exist")
	}
	dir := t.TempDir()
	// A transcode that takes minutes would never end between two kills; others cannot be published.
	tooLong := []string{"long_1080p30_h264_6min.mp4", "vtest_576p10_msmpeg4_80s.avi", "portrait_4k60_rot90_fullrange.mp4"}
	for copies := 1; len(files) < n; copies++ {
		before := len(files)
		for _, f := range found {
			name := filepath.Base(f)
			if len(files) == n || strings.HasPrefix(name, "broken_") || strings.HasSuffix(name, ".tsv") || rejectReasons[name] != "" ||
				strings.HasPrefix(name, "vvc_") || slices.Contains(tooLong, name) {
				continue
			}
			file := filepath.Join(dir, fmt.Sprintf("%d-%s", copies, name))
			content, err := os.ReadFile(f)
			if err == nil {
				err = os.WriteFile(file, content, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		if len(files) == before {
			t.Skip("the directory of real files, " + mediaDir() + ", has none that can be published")
		}
	}
	return files
}

// The campaign takes some twenty minutes, and needs root. CUELIGHT_TEST_CAMPAIGN=1 runs it. Hosts are
// network namespaces that see neither the database nor the directories of the coordinator.
func TestRemoteWorkers_OnHostsThatShareNothing(t *testing.T) {
	if os.Getenv("CUELIGHT_TEST_CAMPAIGN") == "" {
		t.Skip("CUELIGHT_TEST_CAMPAIGN is not set")
	}
	for _, name := range []string{"bucket", "directory"} {
		t.Run(name, func(t *testing.T) {
			const videos, workers, kills = 40, 3, 25
			files := goodFiles(t, videos)
			hosts, ip := newHosts(t, workers)
			f := newFarm(t, ip)
			h := f.h
			for _, dir := range []string{h.data, h.publish} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			f.hosts = hosts
			for _, host := range hosts {
				host.hidden = []string{h.data, h.publish, filepath.Dir(files[0]), "/dev/shm"}
			}
			f.useTLS(net.ParseIP(ip))
			published := func() []string { return publishedMasters(t, h) }
			if name == "bucket" {
				published = f.useBucket(ip)
			}
			f.startCoordinator()
			f.addWorkers(workers)
			for _, file := range files {
				if _, err := f.pool.Exec(t.Context(), `insert into tasks (source) values ($1)`, file); err != nil {
					t.Fatal(err)
				}
			}
			started := time.Now()
			f.killAtRandom(kills, 15*time.Second)
			t.Logf("%d kills in %s", kills, time.Since(started).Round(time.Second))
			f.awaitPublished(videos)
			masters := published()
			if len(masters) != videos {
				t.Fatalf("%d videos are published, want %d", len(masters), videos)
			}
			for _, master := range masters {
				checkPlayback(t, master)
			}
			t.Logf("%d videos in %s; %d attempts expired", videos, time.Since(started).Round(time.Second),
				count(t, f.pool, `select count(*) from attempts where outcome = 'expired'`))
		})
	}
}
