package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/peterldowns/pgtestdb"

	"github.com/cuelight/cuelight/internal/postgres"
)

// port only names the socket file; nothing listens on a network.
const port = "5432"

// startWithin bounds how long a server may take until it answers. It is long
// because the machine may be busy with everybody's tests.
const startWithin = time.Minute

// stopWithin bounds how long one may take to go.
const stopWithin = time.Minute

// throwaway trades safety nobody needs for speed.
var throwaway = []string{
	"fsync=off",
	"full_page_writes=off",
	"max_wal_size=96MB", // it may lie in memory
	"min_wal_size=32MB",
}

// cluster is a server with its data in a temporary directory.
type cluster struct {
	bin      postgres.Binaries
	account  postgres.Account
	dir      string // holds data, s (for the socket) and log
	settings []string

	keeper *exec.Cmd // nil: not running
	leash  *os.File  // the keeper's standard input
	alive  *os.File  // reads end of file when the last process of the server is gone
}

func newCluster(durable bool, settings []string) (*cluster, error) {
	if !durable {
		settings = append(slices.Clone(throwaway), settings...)
	}
	bins, err := postgres.Find("")
	if err != nil {
		return nil, err
	}
	account, err := postgres.LookupAccount("")
	if err != nil {
		return nil, err
	}
	c := &cluster{bin: bins[0], account: account, settings: settings}
	if c.dir, err = c.tempDir(durable); err != nil {
		return nil, fmt.Errorf("make temporary directory: %w", err)
	}
	if err := c.init(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.dir))
	}
	return c, nil
}

// tempDir makes the directory: in memory if there is plenty, because making
// files is most of the work of making a database and takes a tenth of the time
// there. $TMPDIR goes first, but may be one that only we can enter, or too deep
// for a socket's path; /tmp is neither.
func (c *cluster) tempDir(durable bool) (string, error) {
	parents := []string{os.TempDir(), "/tmp"}
	if dir, ok := memoryDir(); ok && !durable && os.Getenv("TMPDIR") == "" {
		parents = append([]string{dir}, parents...)
	}
	var errs []error
	for _, parent := range parents {
		dir, err := os.MkdirTemp(parent, "cuelight-pgtest-")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err = c.account.Own(dir); err == nil && len(dir) < 80 && c.account.CanEnter(c.bin, dir) {
			return dir, nil
		}
		errs = append(errs, err, fmt.Errorf("%s does not suit a server run by %s", dir, c.account.Name), os.Remove(dir))
	}
	return "", errors.Join(errs...)
}

func (c *cluster) init() error {
	for _, d := range []string{c.data(), c.socketDir()} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
		if err := c.account.Own(d); err != nil {
			return err
		}
	}
	return c.bin.InitDB(context.Background(), c.account, c.data(), "--no-sync")
}

func (c *cluster) data() string      { return filepath.Join(c.dir, "data") }
func (c *cluster) socketDir() string { return filepath.Join(c.dir, "s") }
func (c *cluster) logFile() string   { return filepath.Join(c.dir, "log") }

func (c *cluster) url(database string) string {
	return postgres.Address(c.socketDir(), port, database)
}

func (c *cluster) config() pgtestdb.Config {
	conf, err := parse(c.url("postgres"))
	if err != nil {
		panic("pgtest cannot read its own address: " + err.Error())
	}
	return conf
}

// keep runs the server for as long as somebody holds the other end of its
// standard input, which the kernel closes for a process however it ends. Only
// then does it remove the data. Descriptor 3 is for the server and its children
// alone. SIGTERM comes first because a shell's background job ignores SIGQUIT
// until the server has set itself up to heed it.
const keep = `dir=$1; shift
"$@" </dev/null >>"$dir/log" 2>&1 &
exec 3>&-
read -r word
kill -TERM $!; kill -QUIT $!
wait $!
[ "$word" = keep ] || rm -rf -- "$dir"`

// start returns when the server answers.
func (c *cluster) start() error {
	if err := c.startKeeper(); err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	if err := c.waitReady(); err != nil {
		log, _ := os.ReadFile(c.logFile())
		return errors.Join(fmt.Errorf("%w; its log:\n%s", err, log), c.release("keep"))
	}
	return nil
}

func (c *cluster) startKeeper() error {
	args := []string{"-c", keep, "sh", c.dir, c.bin.Path("postgres"), "-D", c.data()}
	for _, s := range append([]string{
		"listen_addresses=", "unix_socket_directories=" + c.socketDir(), "port=" + port,
		"max_connections=300", "shared_buffers=64MB", "jit=off", "log_checkpoints=off",
	}, c.settings...) {
		args = append(args, "-c", s)
	}
	in, leash, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	alive, held, err := os.Pipe()
	if err != nil {
		return errors.Join(err, leash.Close())
	}
	defer held.Close()
	cmd := c.account.Command(context.Background(), "/bin/sh", args...)
	// Output stays nowhere near ours: `go test` waits for whoever holds that.
	cmd.Stdin, cmd.ExtraFiles = in, []*os.File{held}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, leash.Close(), alive.Close())
	}
	c.keeper, c.leash, c.alive = cmd, leash, alive
	return nil
}

func (c *cluster) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.url("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("connect to the new server: %w", err)
		}
		if c.gone(5 * time.Millisecond) {
			return errors.New("the server ended at once")
		}
	}
}

// gone waits up to d for the end of the server and of all its children.
func (c *cluster) gone(d time.Duration) bool {
	if err := c.alive.SetReadDeadline(time.Now().Add(d)); err != nil {
		return false
	}
	_, err := c.alive.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// signal reaches the server itself, not its keeper.
func (c *cluster) signal(sig syscall.Signal) error {
	file, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(file), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, sig)
}

// release lets go of the keeper, which ends the server if it still runs, and
// waits until all of them are gone. The data stays if word is "keep".
func (c *cluster) release(word string) error {
	if c.keeper == nil {
		return nil
	}
	fmt.Fprintln(c.leash, word)
	c.leash.Close()
	_ = c.keeper.Wait() // it reports how the server ended, which we have just decided
	left := !c.gone(stopWithin)
	c.alive.Close()
	c.keeper, c.leash, c.alive = nil, nil, nil
	if left {
		return fmt.Errorf("processes of the server in %s are still there after %v", c.dir, stopWithin)
	}
	return nil
}
