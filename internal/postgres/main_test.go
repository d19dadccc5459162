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
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/postgres"
)

// asUser makes the test binary a process that uses the database in a directory
// until its standard input ends.
const asUser = "POSTGRES_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asUser); dir != "" {
		os.Exit(use(dir))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(goldenDir) // nothing, if no test has asked for it
		os.Exit(code)
	}))
}

// golden is a directory with a database in it that nobody uses. Copying it is
// much cheaper than making one for every test.
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

// database is a directory that has a database already.
func database(t *testing.T) string {
	t.Helper()
	needServer(t)
	if err := golden(); err != nil {
		t.Fatal(err)
	}
	dir := directory(t)
	if out, err := exec.Command("cp", "-a", goldenDir+"/data", dir+"/data").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func use(dir string) int {
	s, err := postgres.Start(context.Background(), postgres.Options{Dir: dir})
	if err != nil {
		fmt.Printf("ERROR %v\n", err)
		return 1
	}
	fmt.Printf("READY %v %s\n", s.Adopted(), s.URL())
	word, _ := io.ReadAll(os.Stdin)
	if strings.TrimSpace(string(word)) == "close and stay" {
		// The second life of a process that has closed its server.
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

// spawn starts a process that uses dir, as somebody else if cred is given.
func spawn(t *testing.T, dir string, cred *syscall.Credential) *userProcess {
	t.Helper()
	p := launch(t, dir, cred)
	p.await()
	return p
}

func launch(t *testing.T, dir string, cred *syscall.Credential) *userProcess {
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
		p.t.Fatalf("the other process says %q", line)
	}
	p.adopted, p.url = f[1] == "true", f[2]
}

func (p *userProcess) line() string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("the other process says nothing: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// leave makes the process close the server, and then stay if word says so.
func (p *userProcess) leave(word string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, word); err != nil {
		p.t.Fatal(err)
	}
	p.in.Close()
	if line := p.line(); line != "CLOSED <nil>" {
		p.t.Errorf("the other process says %q", line)
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

// scratch is where directories are made: in memory, where that is possible,
// because it is ten times as fast.
func scratch() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return "/tmp"
}

// directory is a place that everybody can enter, which t.TempDir is not.
func directory(t *testing.T) string {
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

// copyFile is by another process: were the copy open for writing in this one
// while it starts something else, running it might be refused ("text file busy").
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

// needServer skips where there is nothing to test with.
func needServer(t *testing.T) {
	t.Helper()
	_, err := postgres.Find("")
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skipf("this test needs a PostgreSQL server: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// begin starts or adopts a server and makes sure that it is closed.
func begin(t *testing.T, o postgres.Options) *postgres.Server {
	t.Helper()
	needServer(t)
	s, err := postgres.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, s) })
	return s
}

func end(t *testing.T, s *postgres.Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// do runs a statement and returns its first column, as text.
func do(t *testing.T, url, sql string) string {
	t.Helper()
	s, err := tryDo(url, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return s
}

func tryDo(url, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", err
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(values, ","), err
}

// serverPID is the process that the cluster in home names as its server.
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

// stopped fails the test if the server of home runs.
func stopped(t *testing.T, home, url string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(home, "data", "postmaster.pid")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the server has left its process number: %v", err)
	}
	if _, err := tryDo(url, "select 'here'"); err == nil {
		t.Error("the server still answers")
	}
}

// somebody is a user who is neither root nor the server's.
func somebody(t *testing.T) *syscall.Credential {
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
