package health

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cuelight/cuelight/internal/diskspace"
)

// Loops checks that the main loops of the process make progress; stuck returns the
// names of those that do not.
func Loops(stuck func() []string) Check {
	return Check{Name: "loops", Run: func(context.Context) error {
		if names := stuck(); len(names) > 0 {
			return fmt.Errorf("stuck: %s", strings.Join(names, ", "))
		}
		return nil
	}}
}

var errNotListening = errors.New("no notifications arrive; only the sweep finds work")

// Listening checks that notifications arrive.
func Listening(connected func() bool) Check {
	return Check{Name: "listener", Run: func(context.Context) error {
		if !connected() {
			return errNotListening
		}
		return nil
	}}
}

// Disk checks that the disk of dir has at least minFree bytes free for unprivileged
// processes. Clients without credentials see the name, too.
func Disk(name, dir string, minFree int64) Check {
	return Check{Name: name, Run: func(context.Context) error {
		free, _, err := diskspace.Free(dir)
		if err != nil {
			return fmt.Errorf("read the free space of %s: %w", dir, err)
		}
		if free < minFree {
			return fmt.Errorf("%[2]s has %[1]d MiB free, less than %[3]d", free>>20, dir, minFree>>20)
		}
		return nil
	}}
}
