package fetch

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"time"
)

// Options are the limits of one [Fetch]. The zero value is usable.
type Options struct {
	// Allow names networks that may be downloaded from although they are not
	// public, such as the one the storage is in. Default none.
	Allow []netip.Prefix

	// MaxBytes is the largest download. Default 100 GiB. A local file is
	// bounded by the free disk space only.
	MaxBytes int64

	// Timeout ends a download that has taken longer in one call; what has come
	// is kept for the next one. Default 12 h.
	Timeout time.Duration

	// IdleTimeout ends a download during which nothing has come for so long,
	// connecting included, or less than MinBytes. What has come is kept for the
	// next call. Default 1 min.
	IdleTimeout time.Duration

	// MinBytes is the least that must come in each IdleTimeout, the time that
	// writing takes not counted. It is for servers that keep a download alive
	// with a byte now and then. The end of a file may be shorter. Default
	// 64 KiB; negative: one byte is enough.
	MinBytes int64

	// Reserve is how many bytes must stay free on the destination's disk.
	// Default 0.
	Reserve int64

	// Link allows a hard link to a local source where there is no reflink. It
	// is right only if nobody writes into a source once it is submitted;
	// replacing one by rename is harmless.
	Link bool

	// Partial names the file that holds an unfinished download between calls,
	// on the destination's file system; its state is kept beside it, with
	// ".json" added. While one call uses it, another with the same name starts
	// over in a file of its own. Default "": nothing is kept.
	Partial string

	// Progress is called while bytes come in: how many of how many. Those that
	// an earlier call left are read again and counted first. The total is
	// negative where it is not known.
	Progress func(done, total int64)

	// For tests.
	resolver      *net.Resolver
	hostAddresses func() ([]net.Addr, error)
}

const (
	defaultMaxBytes    = 100 << 30
	defaultTimeout     = 12 * time.Hour
	defaultIdleTimeout = time.Minute
	defaultMinBytes    = 64 << 10
)

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	if o.MinBytes == 0 {
		o.MinBytes = defaultMinBytes
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	return o
}

// The ways a source is brought over; see [File].
const (
	Reflink  = "reflink"
	Link     = "link"
	Copy     = "copy"
	Download = "download"
)

// File is what [Fetch] brought.
type File struct {
	Name   string // the source's own name, for people: valid UTF-8, no path
	Bytes  int64
	SHA256 string // of the bytes at the destination, hexadecimal
	How    string // Reflink, Link, Copy or Download
}

// Fetch brings source to the file dst, in a directory that exists and that
// nobody else writes to. A file that is already there is replaced.
func Fetch(ctx context.Context, source, dst string, o Options) (File, error) {
	o = o.withDefaults()
	src, err := parseSource(source)
	if err != nil {
		return File{}, &Error{Source: src.label, Permanent: true, Err: err}
	}
	var f File
	if src.url != nil {
		f, err = download(ctx, src.url, dst, o)
	} else {
		f, err = takeLocal(ctx, src.path, dst, o)
	}
	if err != nil {
		// What broke because the context ended broke because of that.
		if ctx.Err() != nil {
			return File{}, ctx.Err()
		}
		return File{}, describe(src.label, err)
	}
	f.Name = src.name
	return f, nil
}

// Free returns how many bytes a process without privileges can still write to
// the file system that holds dir.
func Free(dir string) (int64, error) {
	free, _, err := Room(dir)
	return free, err
}

// Room is Free, and how many bytes the file system could hold if it were empty.
func Room(dir string) (free, size int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}

// checkSpace refuses what would not leave the reserve free, and for good what the
// disk could not hold if it were empty. A disk that cannot say how full it is, is
// taken to have room: writing will tell.
func checkSpace(dst string, need, reserve int64) error {
	dir := filepath.Dir(dst)
	free, size, err := Room(dir)
	if err != nil || free >= need+reserve {
		return nil
	}
	if NeverFits(need, reserve, size) {
		return refused("%s are needed, and the disk of %q has only %s in all, of which %s are to be kept free",
			bytesText(need), dir, bytesText(size), bytesText(reserve))
	}
	return &noSpaceError{dir: dir, need: need, reserve: reserve, free: free}
}

// NeverFits reports whether so much would leave too little free on a disk that is
// empty. A reserve that is as large as the disk is a mistake in the settings, and
// says nothing about what is to be written.
func NeverFits(need, reserve, size int64) bool { return reserve < size && need > size-reserve }
