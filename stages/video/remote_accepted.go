package video

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/internal/flock"
)

// acceptedFile has the result of a claim whose files were accepted. It is in a directory in the place
// of the one in which they arrived, which a Cleaner removes when it is old. Every coordinator on these
// directories finds it: none checks again what another has accepted and perhaps reported.
const acceptedFile = "accepted.json"

// acceptedBefore returns the result of a claim whose files were accepted; nil if they were not.
func acceptedBefore(receiving string) (json.RawMessage, error) {
	result, err := os.ReadFile(filepath.Join(receiving, acceptedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read result of accepted files: %w", err)
	}
	return result, nil
}

// recordAccepted stores the result of a claim. The caller holds the lock of the accepted files, which
// have their final name.
func recordAccepted(receiving string, result json.RawMessage) error {
	if err := os.Mkdir(receiving, privateMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("record result of accepted files: %w", err)
	}
	file := filepath.Join(receiving, acceptedFile)
	err := os.WriteFile(file+".tmp", result, 0o600)
	if err == nil {
		err = os.Rename(file+".tmp", file)
	}
	if err != nil {
		return fmt.Errorf("record result of accepted files: %w", err)
	}
	return nil
}

// findAccepted returns the directory of a claim's files that has its final name, or "".
func findAccepted(w *workdir) (dir string, err error) {
	names, err := dirNames(w.parent, w.stage)
	for _, d := range names {
		if d.random == w.random && !d.unfinished {
			dir = filepath.Join(w.parent, d.String())
		}
	}
	return dir, err
}

// lockToAccept locks the directory in which a claim's files have arrived. It takes back accepted files
// whose result was not recorded, because the coordinator died in between: they are checked again. Where
// another coordinator checks or has accepted them, it returns an error, and acceptedBefore soon finds
// the result.
func lockToAccept(ctx context.Context, w *workdir) (*os.File, error) {
	if err := reopenAccepted(ctx, w); err != nil {
		return nil, err
	}
	lock, err := lockReceiving(ctx, w.path)
	if err != nil {
		return nil, err
	}
	accepted, err := findAccepted(w)
	if err == nil && accepted != "" {
		err = errComplete // while this waited
	}
	if err != nil {
		flock.Unlock(lock)
		return nil, err
	}
	return lock, nil
}

func reopenAccepted(ctx context.Context, w *workdir) error {
	accepted, err := findAccepted(w)
	if accepted == "" || err != nil {
		return err
	}
	lock, err := lockReceiving(ctx, accepted) // who checks the files has it until the result is recorded
	if err != nil {
		return err
	}
	defer flock.Unlock(lock)
	if result, err := acceptedBefore(w.path); result != nil || err != nil {
		return errors.Join(err, errComplete)
	}
	_ = os.RemoveAll(w.path) // made just now
	return os.Rename(accepted, w.path)
}
