package postgres

import (
	"regexp"
	"strings"
)

// detailLines is how many lines of the server's log an error contains.
const detailLines = 12

// explanations map the server's messages to a text and a hint for an operator. The first match
// counts, so the more specific ones come first.
var explanations = []struct {
	match *regexp.Regexp
	text  string
	hint  string
	err   error
}{
	{regexp.MustCompile(`(?i)no space left on device|could not (write|extend).*disk full`),
		"the disk is full", "make room on the disk that holds the database and start again", nil},
	{regexp.MustCompile(`(?i)disk quota exceeded`),
		"the disk quota is used up", "make room or raise the quota, then start again", nil},
	{regexp.MustCompile(`(?i)read-only file system`),
		"the file system is mounted read-only", "see the system log for the reason, and mount it for writing", nil},
	{regexp.MustCompile(`(?i)lock file ".*" already exists|pre-existing shared memory block`),
		"another server still holds the database", "stop it, or wait until it has ended", ErrInUse},
	{regexp.MustCompile(`(?i)has wrong ownership`),
		"the database directory belongs to another user", "run as that user or as root", ErrAccount},
	{regexp.MustCompile(`(?i)cannot be executed by|cannot be run as root`),
		"PostgreSQL refuses to run as root", "run it as another user", ErrAccount},
	{regexp.MustCompile(`(?i)data directory ".*" has (invalid permissions|group or world access)`),
		"the database directory is open to other users",
		"restrict it (chmod 0700), or use a file system that keeps permissions", nil},
	{regexp.MustCompile(`(?i)database files are incompatible with server`),
		"another version or build of PostgreSQL created the database", "install that version", nil},
	{
		regexp.MustCompile(`(?i)could not (create|resize|open) shared memory segment|` +
			`could not map anonymous shared memory|could not create semaphores`),
		"there is not enough shared memory or semaphores for the server",
		"free memory, enlarge /dev/shm, or raise the kernel's limits (kernel.shmmax, kernel.sem)", nil,
	},
	{regexp.MustCompile(`(?i)cannot allocate memory|out of memory`),
		"there is not enough memory for the server", "free memory and start again", nil},
	{regexp.MustCompile(`(?i)too many open files|insufficient file descriptors`),
		"the limit of open files is too low for the server", "raise it (ulimit -n)", nil},
	{regexp.MustCompile(`(?i)permission denied`),
		"the server has no permission for one of its files",
		"give the database directory and all in it to the server's user (chown -R), with mode 0700", nil},
	{regexp.MustCompile(`(?i)error while loading shared libraries|library not loaded`),
		"the PostgreSQL installation is damaged: a library is missing", "install PostgreSQL again", ErrNotInstalled},
	{
		regexp.MustCompile(`(?i)unrecognized configuration parameter|invalid value for parameter|` +
			`syntax error in file|configuration file ".*" contains errors`),
		"the server's configuration has an error", "correct the line that the log names", nil,
	},
	{
		regexp.MustCompile(`(?i)could not locate a valid checkpoint record|invalid (primary )?checkpoint record|` +
			`control file appears to be corrupt|could not open file ".*global/pg_control"`),
		"the database is damaged", "restore it from a backup; nothing was changed", nil,
	},
}

// explain makes an error of the output of a server or initdb that failed.
func explain(output string) *Error {
	e := &Error{Text: "the server ended", Detail: lastLines(strings.TrimSpace(output), detailLines)}
	for _, x := range explanations {
		if x.match.MatchString(output) {
			e.Text, e.Hint, e.Err = x.text, x.hint, x.err
			break
		}
	}
	return e
}
