package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// encoderPause is how long a hardware encoder is not used after a failure: so long that a missing device
// costs little, and so short that one which was busy is used again.
const encoderPause = 10 * time.Minute

// encodeWithFallback encodes with a hardware encoder, and with libx264 if that fails or its result is wrong. A failure that
// libx264 shows, too, is not the device's.
func (r transcodeRun) encodeWithFallback(ctx context.Context, e videoEncoder, d *device) (*Output, error) {
	out, err := r.encodeChecked(ctx, e, d)
	if err == nil || ctx.Err() != nil || !isEncoderFailure(err) {
		return out, err
	}
	if err := emptyDir(r.dir); err != nil {
		return nil, fmt.Errorf("remove the output of %s: %w", e.name, err)
	}
	r.failed = e.name
	out, softwareErr := r.encodeChecked(ctx, libx264, nil)
	if softwareErr != nil {
		return nil, softwareErr
	}
	r.tools.Cache.pauseEncoder(e.name)
	out.FailedEncoder = e.name
	out.warn("%s failed: %s; encoded with %s", e.name, encoderFailure(err, e), libx264.name)
	return out, nil
}

// encodeInsteadOfCopy encodes all renditions, because a copy failed or the source is damaged. Segments begin where they were planned.
func (r transcodeRun) encodeInsteadOfCopy(ctx context.Context, cause error) (*Output, error) {
	if err := emptyDir(r.dir); err != nil {
		return nil, fmt.Errorf("remove the copy: %w", err)
	}
	r.video = slices.Clone(r.video)
	for i := range r.video {
		r.video[i].rung.Copied = false
	}
	out, err := r.encodeChecked(ctx, libx264, nil)
	if err == nil {
		out.warn("copied nothing: %v", cmp.Or(cause, errors.New("the source is damaged")))
	}
	return out, err
}

// progressOf adds the names of the encoders to the reports.
func (r transcodeRun) progressOf(e videoEncoder) func(Progress) {
	if r.progress == nil || len(r.video) == 0 {
		return r.progress
	}
	return func(p Progress) {
		p.Encoder, p.FailedEncoder = e.name, r.failed
		r.progress(p)
	}
}

// isEncoderFailure reports whether another encoder may succeed. Errors of the host, of the sandbox, of the
// watchdog and of reading the source say nothing about the encoder; a rejection is due to the decoder.
func isEncoderFailure(err error) bool {
	for _, other := range []error{
		ErrStalled, ErrStarved, ErrTooLong, ErrMemory, ErrNoSpace, ErrSandbox, ErrToolMissing, ErrInput, ErrInputStalled, syscall.EROFS,
	} {
		if errors.Is(err, other) {
			return false
		}
	}
	_, isRejected := errors.AsType[*RejectedError](err)
	_, isFile := errors.AsType[*fs.PathError](err)
	exit, isExit := errors.AsType[*exitError](err)
	switch {
	case isRejected, isFile && !errors.Is(err, fs.ErrNotExist):
		return false
	case isExit && exit.signal != 0:
		return slices.Contains(crashSignals, exit.signal)
	}
	return true
}

// crashSignals end a program with an error of its own, such as one in a driver.
var crashSignals = []syscall.Signal{
	syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGSYS, syscall.SIGTRAP,
}

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}

// pauseEncoder keeps an encoder from being used for some minutes.
func (c *CapabilityCache) pauseEncoder(name string) {
	if c != nil {
		c.pausedUntil.Store(name, time.Now().Add(encoderPause))
	}
}

func (c *CapabilityCache) resumeEncoder(name string) {
	if c != nil {
		c.pausedUntil.Delete(name)
	}
}

func (c *CapabilityCache) isEncoderPaused(name string) bool {
	if c == nil {
		return false
	}
	until, ok := c.pausedUntil.Load(name)
	return ok && time.Now().Before(until.(time.Time))
}
