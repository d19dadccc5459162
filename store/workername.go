package store

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWorkerName is how long a worker's name may be, in characters.
const maxWorkerName = 100

// CheckWorkerName returns [ErrInvalidWorker] unless the name has 1 to 100 printable
// characters, and not only spaces.
func CheckWorkerName(name string) error {
	if strings.TrimSpace(name) == "" || utf8.RuneCountInString(name) > maxWorkerName || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%w: a name has 1 to %d printable characters", ErrInvalidWorker, maxWorkerName)
	}
	return nil
}

// WorkerNameOf returns the name of a worker that was given none: its host's, without
// characters that a name must not have.
func WorkerNameOf(host string) string {
	name := []rune(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, host))
	return cmp.Or(strings.TrimSpace(string(name[:min(len(name), maxWorkerName)])), "unknown")
}
