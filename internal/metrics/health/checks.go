package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Loops checks that the loops a process lives by go round; stuck names those that
// do not.
func Loops(stuck func() []string) Check {
	return Check{Name: "loops", Run: func(context.Context) error {
		if names := stuck(); len(names) > 0 {
			return fmt.Errorf("stuck: %s", strings.Join(names, ", "))
		}
		return nil
	}}
}

var errDeaf = errors.New("no notifications come in; only the sweep finds work")

// Listening checks that notifications come in.
func Listening(connected func() bool) Check {
	return Check{Name: "listener", Run: func(context.Context) error {
		if !connected() {
			return errDeaf
		}
		return nil
	}}
}

// Disk checks that there is room for at least floor bytes, for a process without
// privileges, on the disk that holds dir. Its name is told to strangers, too.
func Disk(name, dir string, floor int64) Check {
	return Check{Name: name, Run: func(context.Context) error {
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err != nil {
			return fmt.Errorf("ask for the room in %s: %w", dir, err)
		}
		if free := int64(st.Bavail) * int64(st.Bsize); free < floor {
			return fmt.Errorf("%d MiB are left in %s, less than %d", free>>20, dir, floor>>20)
		}
		return nil
	}}
}
