package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// defaultSettings are part of the configuration of a new cluster. An operator may
// change them, by hand or with ALTER SYSTEM.
const defaultSettings = `

# Cuelight set these when it created this database, for a machine that also runs
# ffmpeg. You may change them; Cuelight does not write them again.
max_connections = 100
shared_buffers = 128MB
jit = off
max_parallel_workers_per_gather = 0
wal_compression = on
min_wal_size = 256MB # keeps used WAL segments: commits wait for a new one
log_checkpoints = off
log_line_prefix = '%m [%p] '
`

// cluster is a database directory, and the account and programs that can run it.
type cluster struct {
	home    string
	data    string // below home
	bin     Binaries
	account Account
}

// locate finds the cluster of o.Dir, or chooses the directory and the account of a
// new one.
func locate(o Options) (*cluster, error) {
	bins, err := Find()
	if err != nil {
		return nil, err
	}
	home, err := findHome(o.Dir, o.FallbackDir, bins[0])
	if err != nil {
		return nil, err
	}
	c := &cluster{home: home, data: filepath.Join(home, dataName), bin: bins[0]}
	major, err := c.major()
	if err != nil {
		return nil, err
	}
	if major == 0 {
		c.account, err = LookupAccount()
		return c, err
	}
	if c.account, err = c.owner(); err != nil {
		return nil, err
	}
	if c.bin, err = chooseBinaries(bins, major, c.data); err != nil {
		return nil, err
	}
	return c, nil
}

// checkAccess returns an error if the account cannot enter the cluster.
func (c *cluster) checkAccess() error {
	if c.account.CanEnter(c.bin, c.data) {
		return nil
	}
	blocked := c.account.blockedAt(c.bin, c.data)
	return &Error{
		Text: fmt.Sprintf("user %q, which owns the database in %s, cannot enter %s", c.account.Name, c.data, blocked),
		Hint: fmt.Sprintf("allow it: chmod o+x '%s'", blocked),
		Err:  ErrAccount,
	}
}

// major is the major version of the cluster, or 0 if there is none yet.
func (c *cluster) major() (int, error) {
	text, err := os.ReadFile(filepath.Join(c.data, "PG_VERSION"))
	if err == nil {
		major, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || major < 10 {
			return 0, notCluster(c.data, "has a file PG_VERSION without a version")
		}
		return major, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		if errors.Is(err, os.ErrPermission) {
			return 0, &Error{
				Text: fmt.Sprintf("the database in %s belongs to another user", c.data),
				Hint: "run as that user or as root",
				Err:  errors.Join(ErrAccount, err),
			}
		}
		return 0, notCluster(c.data, "cannot be read ("+err.Error()+")")
	}
	entries, err := os.ReadDir(c.data)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, notCluster(c.data, "cannot be read ("+err.Error()+")")
	}
	if len(entries) > 0 {
		return 0, notCluster(c.data, "contains other files")
	}
	return 0, nil
}

// owner is the account that must run an existing cluster.
func (c *cluster) owner() (Account, error) {
	info, err := os.Stat(c.data)
	if err != nil {
		return Account{}, fmt.Errorf("inspect database: %w", err)
	}
	uid := ownerOf(info)
	if os.Geteuid() == 0 {
		return accountByID(uid)
	}
	self, err := LookupAccount()
	if err == nil && uid != self.UID {
		err = &Error{
			Text: fmt.Sprintf("the database in %s belongs to another user (id %d)", c.data, uid),
			Hint: "run as that user or as root",
			Err:  ErrAccount,
		}
	}
	return self, err
}

func chooseBinaries(bins []Binaries, major int, data string) (Binaries, error) {
	for _, b := range bins {
		if b.Major == major {
			return b, nil
		}
	}
	return Binaries{}, &VersionError{Dir: data, Major: major, Found: bins}
}

// create creates the cluster if there is none: first under a temporary name, so
// that the directory data is always complete.
func (c *cluster) create(ctx context.Context) error {
	if major, err := c.major(); major != 0 || err != nil {
		return err
	}
	c.removeLeftovers()
	temp, err := os.MkdirTemp(c.home, tempPattern)
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	err = c.fill(ctx, temp)
	if err == nil {
		// The system call replaces an empty directory and nothing else. os.Rename
		// refuses even that.
		if err = syscall.Rename(temp, c.data); err == nil {
			return syncDir(c.home)
		}
		err = fmt.Errorf("create database: rename %s to %s: %w", temp, c.data, err)
	}
	return errors.Join(err, os.RemoveAll(temp))
}

// fill creates a complete cluster in dir, and returns when it is on the disk.
func (c *cluster) fill(ctx context.Context, dir string) error {
	if err := c.account.Own(dir); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	if err := c.bin.InitDB(ctx, c.account, dir); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	_, err = f.WriteString(defaultSettings)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}

// removeLeftovers removes the incomplete clusters of processes that were killed. If
// the initdb of one is still running, some files stay until the next start; that is
// no error.
func (c *cluster) removeLeftovers() {
	entries, err := os.ReadDir(c.home)
	if err != nil {
		return
	}
	for _, e := range entries {
		if isTemp, _ := filepath.Match(tempPattern, e.Name()); isTemp && e.IsDir() {
			_ = os.RemoveAll(filepath.Join(c.home, e.Name()))
		}
	}
}
