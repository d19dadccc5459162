package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/postgres"
)

// asUser is the environment variable that makes the test binary a process that uses the
// database in a directory until its standard input ends.
const asUser = "POSTGRES_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asUser); dir != "" {
		os.Exit(useDatabase(dir))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(goldenDir) // empty if no test needed it
		os.Exit(code)
	}))
}

// golden creates a database that tests copy, which is much faster than initdb.
var golden = sync.OnceValue(func() (err error) {
	if goldenDir, err = os.MkdirTemp(scratch(), "cuelight-pg-golden-"); err != nil {
		return err
	}
	if err := os.Chmod(goldenDir, 0o755); err != nil {
		return err
	}
	s, err := postgres.Start(context.Background(), postgres.Options{Dir: goldenDir})
	if err != nil {
		return err
	}
	return s.Close()
})

var goldenDir string

// newDatabase returns a directory with a database.
func newDatabase(t *testing.T) string {
	t.Helper()
	needServer(t)
	if err := golden(); err != nil {
		t.Fatal(err)
	}
	dir := newDir(t)
	if out, err := exec.Command("cp", "-a", goldenDir+"/data", dir+"/data").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func useDatabase(dir string) int {
	s, err := postgres.Start(context.Background(), postgres.Options{Dir: dir})
	if err != nil {
		fmt.Printf("ERROR %v\n", err)
		return 1
	}
	fmt.Printf("READY %v %s\n", s.Adopted(), s.URL())
	word, _ := io.ReadAll(os.Stdin)
	if strings.TrimSpace(string(word)) == "close and stay" {
		// The process lives on after it has closed the server.
		fmt.Printf("CLOSED %v\n", s.Close())
		select {}
	}
	fmt.Printf("CLOSED %v\n", s.Close())
	return 0
}

// userProcess is another process that uses a database.
type userProcess struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.WriteCloser
	lines   *bufio.Scanner
	adopted bool
	url     string
}

// startUser starts a process that uses dir, as another account if cred is given.
func startUser(t *testing.T, dir string, cred *syscall.Credential) *userProcess {
	t.Helper()
	p := launchUser(t, dir, cred)
	p.await()
	return p
}

func launchUser(t *testing.T, dir string, cred *syscall.Credential) *userProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if cred != nil {
		self = copyFile(t, self)
	}
	p := &userProcess{t: t, cmd: exec.Command(self)}
	p.cmd.Dir = "/"
	p.cmd.Env = append(os.Environ(), asUser+"="+dir)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // most have ended
		_ = p.cmd.Wait()
	})
	return p
}

func (p *userProcess) await() {
	p.t.Helper()
	line := p.line()
	f := strings.Fields(line)
	if len(f) != 3 || f[0] != "READY" {
		p.t.Fatalf("the other process printed %q", line)
	}
	p.adopted, p.url = f[1] == "true", f[2]
}

func (p *userProcess) line() string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("the other process printed nothing: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// leave makes the process close the server and end, or stay if the word says so.
func (p *userProcess) leave(word string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, word); err != nil {
		p.t.Fatal(err)
	}
	p.in.Close()
	if line := p.line(); line != "CLOSED <nil>" {
		p.t.Errorf("the other process printed %q", line)
	}
	if word == "" {
		if err := p.cmd.Wait(); err != nil {
			p.t.Error(err)
		}
	}
}

func (p *userProcess) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = p.cmd.Wait() // it was killed
}

// scratch is the parent of new directories: in memory if possible, which is ten times as
// fast.
func scratch() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return "/tmp"
}

// newDir creates a directory that every account can enter, unlike t.TempDir.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(scratch(), "cuelight-pg-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyFile copies in another process. If this process had the copy open for writing
// while it starts a program, the copy might not be executable ("text file busy").
func copyFile(t *testing.T, path string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "cuelight-pg-test-") // programs in memory may be forbidden
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	to := filepath.Join(dir, "copy")
	if out, err := exec.Command("cp", path, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(to, 0o755)); err != nil {
		t.Fatal(err)
	}
	return to
}

// needServer skips the test on a machine without PostgreSQL.
func needServer(t *testing.T) {
	t.Helper()
	_, err := postgres.Find()
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skipf("this test needs a PostgreSQL server: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startServer starts or adopts a server, and closes it at the end of the test.
func startServer(t *testing.T, o postgres.Options) *postgres.Server {
	t.Helper()
	needServer(t)
	s, err := postgres.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeServer(t, s) })
	return s
}

func closeServer(t *testing.T, s *postgres.Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// serverPID returns the process id in postmaster.pid of the cluster in home.
func serverPID(t *testing.T, home string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(home, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// wantStopped fails the test if the server of home runs.
func wantStopped(t *testing.T, home, url string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(home, "data", "postmaster.pid")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("postmaster.pid still exists: %v", err)
	}
	if _, err := queryText(t.Context(), url, "select 'here'"); err == nil {
		t.Error("the server still answers")
	}
}

// otherAccount returns an account that is neither root nor the server's.
func otherAccount(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// queryText runs statements on a connection of its own and returns the first column of
// the result as text.
func queryText(ctx context.Context, address, sql string) (string, error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", err
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(values, ","), err
}

func query(t *testing.T, address, sql string) string {
	t.Helper()
	text, err := queryText(t.Context(), address, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}
